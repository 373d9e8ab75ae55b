"""Traces of simulated steps: what viewers need, and that no stream does two things at once."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from foretell.cost.price import priced
from foretell.hardware.catalog import cluster
from foretell.oracle.predict import predict
from foretell.plan.job import Job
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import trainer
from foretell.timeline.simulate import Simulated, simulate
from foretell.timeline.trace import trace, write_trace
from program_cases import load

MODEL = "llama:layers=4,hidden=64,heads=8,vocab=256,seq=32,kv_heads=4,head_dim=8,ffn=96"
PLANS = (
    "dp1 +m2",
    "dp4:zero3 tp2:sp +m2",
    "dp4:zero1 cp2:ring +recompute:block +m2",
    "pp2:1f1b dp4 +m4",
    "pp2:interleaved,v2 dp2:zero3 tp2 +m4",
    "pp2:zb-v dp2 +m4 +offload:activations",
    "pp2:dualpipe tp2 +m4 +offload:optimizer",
)
TRAINERS = ("pytorch", "pytorch-compiled", "megatron-deepspeed")


def step(plan: str, trained_by: str, ahead: bool = False) -> Simulated:
    parsed = parse(plan)
    graph = load(MODEL, 16 // parsed.microbatches)
    setting = Setting(graph, Job(batch=16), parsed, trainer(trained_by))
    return simulate(priced(setting, cluster("16xh100")), ahead=ahead)


def read(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text())["traceEvents"]


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("trained_by", TRAINERS)
@pytest.mark.parametrize("ahead", [False, True])
def test_no_stream_does_two_things_at_once(plan: str, trained_by: str, ahead: bool, tmp_path: Path) -> None:
    simulated = step(plan, trained_by, ahead)
    write_trace(simulated, tmp_path / "step.json")
    rows: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for event in read(tmp_path / "step.json"):
        if event["ph"] == "X":
            assert event["ts"] >= 0
            assert event["dur"] >= 0
            rows[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in rows.values():
        spans.sort()
        for (_, end), (start, _) in pairwise(spans):
            assert start >= end - 2e-3, "a nanosecond of rounding at each end"


def test_viewers_find_names_for_every_process_and_thread(tmp_path: Path) -> None:
    simulated = step("pp2:1f1b dp2 tp2 +m4", "pytorch")
    write_trace(simulated, tmp_path / "step.json")
    events = read(tmp_path / "step.json")
    processes = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert processes == {0: "pipeline rank 0, 4 ranks", 1: "pipeline rank 1, 4 ranks"}
    assert {(event["pid"], event["tid"]) for event in events if event["ph"] == "X"} == set(threads)
    names = [name for (process, _), name in sorted(threads.items()) if process == 0]
    assert names == ["host", "compute", "activations tp", "weights dp", "sends forward"]
    assert {event["ph"] for event in events} == {"X", "M"}
    for event in events:
        if event["ph"] == "X":
            assert set(event) == {"name", "cat", "ph", "pid", "tid", "ts", "dur", "args"}
            assert set(event["args"]) == {"bytes", "flops"}


def test_the_trace_is_as_long_as_the_step_and_carries_its_work() -> None:
    simulated = step("dp1", "pytorch-compiled")
    shown = trace(simulated)
    spans = [event for event in shown["traceEvents"] if event["ph"] == "X"]
    assert shown["otherData"]["step_seconds"] == simulated.step_seconds
    assert max(event["ts"] + event["dur"] for event in spans) == pytest.approx(simulated.step_seconds * 1e6, abs=1e-2)
    flops = sum(event["args"]["flops"] for event in spans)
    assert flops == pytest.approx(sum(event.flops for event in simulated.events))
    assert flops > 0
    assert {event["cat"] for event in spans} - {"host"} == {"forward", "backward", "optimizer"}


def test_a_host_that_is_ahead_begins_the_trace() -> None:
    """In a row of steps a device-bound step is launched while the one before still runs."""
    simulated = step("dp1 +m2", "pytorch", ahead=True)
    slow = min(event.start for event in simulated.events if event.stream == "host")
    first = min(event["ts"] for event in trace(simulated)["traceEvents"] if event["ph"] == "X")
    assert slow <= 0.0
    assert first == 0.0


def totals(rows: list[dict[str, Any]]) -> dict[tuple[str, str, int, int], Counter[str]]:
    """Seconds, bytes, flops and events of every sort: its category, its collective, its process and thread."""
    found: dict[tuple[str, str, int, int], Counter[str]] = defaultdict(Counter)
    for row in rows:
        if row["ph"] == "X":
            collective = row["name"].split()[0] if row["cat"] in ("activations", "weights") else ""
            sums = found[row["cat"], collective, row["pid"], row["tid"]]
            sums["seconds"] += row["dur"] / 1e6
            sums["events"] += row["args"].get("events", 1)
            for name in ("bytes", "flops"):
                sums[name] += row["args"][name]
    return found


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("trained_by", TRAINERS)
@pytest.mark.parametrize("budget", [0, 60, 200])
def test_a_folded_trace_keeps_the_step_and_every_total(plan: str, trained_by: str, budget: int) -> None:
    simulated = step(plan, trained_by)
    whole, folded = trace(simulated, len(simulated.events)), trace(simulated, budget)
    assert whole["otherData"]["folded"] == "nothing: every event is here"
    assert f"{len(simulated.events):,} events into" in folded["otherData"]["folded"]
    spans = [row for row in folded["traceEvents"] if row["ph"] == "X"]
    assert len(spans) < len(simulated.events)
    assert max(row["ts"] + row["dur"] for row in spans) == pytest.approx(simulated.step_seconds * 1e6, abs=1e-2)
    before, after = totals(whole["traceEvents"]), totals(spans)
    assert before.keys() == after.keys()
    for sort, sums in before.items():
        assert after[sort]["events"] == sums["events"]
        assert after[sort] == pytest.approx(sums, rel=1e-9, abs=2e-9 * sums["events"])
    rows: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for row in spans:
        rows[row["pid"], row["tid"]].append((row["ts"], row["ts"] + row["dur"]))
    for own in rows.values():
        assert all(start >= end - 2e-3 for (_, end), (start, _) in pairwise(sorted(own)))


@pytest.mark.parametrize("plan", PLANS)
def test_phases_of_a_folded_trace_are_those_that_are_predicted(plan: str) -> None:
    """Of the rank that the prediction breaks down, which is the one that computes longest."""
    parsed = parse(plan)
    setting = Setting(load(MODEL, 16 // parsed.microbatches), Job(batch=16), parsed, trainer("pytorch-compiled"))
    told = predict(setting, cluster("16xh100")).breakdown
    rows = trace(simulate(priced(setting, cluster("16xh100"))), 60)["traceEvents"]
    for phase in ("forward", "backward", "recompute"):
        ranks = Counter[int]()
        for row in rows:
            if row["ph"] == "X" and row["cat"] == phase:
                ranks[row["pid"]] += row["dur"] / 1e6
        assert any(seconds == pytest.approx(told.get(phase, 0.0), rel=1e-5) for seconds in (ranks or {0: 0.0}).values())


def test_one_micro_batch_of_a_folded_trace_is_event_by_event() -> None:
    simulated = step("pp2:1f1b dp4 +m4", "pytorch-compiled")
    own = [event for event in simulated.events if event.slot is not None and event.slot.microbatch == 2]
    budget = 2 * len(own)
    assert budget < len(simulated.events)
    shown = trace(simulated, budget)
    assert shown["otherData"]["folded"].endswith("; micro-batch 2 is written event by event")
    names = Counter(row["name"] for row in shown["traceEvents"] if row["ph"] == "X" and "events" not in row["args"])
    assert Counter(event.name for event in own) <= names


def test_a_long_step_is_a_small_file(tmp_path: Path) -> None:
    """128 micro-batches of 80 layers on four stages: 115 MB, if every event were written."""
    model = "llama:layers=80,hidden=64,heads=8,vocab=256,seq=32,kv_heads=8,head_dim=8,ffn=96"
    plan = parse("pp4:1f1b dp2 tp2:sp +m128 +recompute:block")
    setting = Setting(load(model, 256 // 128), Job(batch=256), plan, trainer("megatron-core"))
    simulated = simulate(priced(setting, cluster("16xh100")))
    assert len(simulated.events) > 500_000
    write_trace(simulated, tmp_path / "step.json")
    write_trace(simulated, tmp_path / "step.json.gz")
    content = (tmp_path / "step.json").read_bytes()
    assert len(content) < 5e6
    assert gzip.decompress((tmp_path / "step.json.gz").read_bytes()) == content
    assert len(json.loads(content)["traceEvents"]) < 26_000
