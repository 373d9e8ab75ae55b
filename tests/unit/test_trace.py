"""Traces of simulated steps: what viewers need, and that no stream does two things at once."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from foretell.cost.price import priced
from foretell.hardware.catalog import cluster
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
    assert processes == {0: "place 0, 4 ranks", 1: "place 1, 4 ranks"}
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
