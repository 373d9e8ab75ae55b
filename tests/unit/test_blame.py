"""Whose fault lost seconds are: faults planted in traces that a script writes, each in the forms that are read."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from foretell.errors import BadInput
from foretell.oracle.blame import Blame
from foretell.oracle.blamed import blamed
from foretell.oracle.traces import read

STEPS, LAYERS = 4, 5
KERNELS = {"nvjet_tst_128x256": 900.0, "flash_fwd_kernel": 400.0, "vectorized_add": 120.0, "layer_norm_cuda": 80.0}
MESSAGE, SENT = "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 700.0
GAP = 10.0
"""Microseconds of the kernels of a layer, of its message, and between two kernels."""

Spans = list[tuple[str, str, float, float]]
"""Name, stream, start, microseconds."""


def steps(rank: int, fault: str, ranks: int = 4) -> tuple[Spans, list[tuple[float, float]]]:
    """A rank's steps as a device sees them: layers, a message after each, and all wait for the last."""
    found: Spans = []
    marks: list[tuple[float, float]] = []
    clock = 0.0
    for _ in range(STEPS):
        begin = clock
        for _ in range(LAYERS):
            own = sum(_layer(rank, fault).values()) + len(KERNELS) * GAP
            last = max(sum(_layer(one, fault).values()) + len(KERNELS) * GAP for one in range(ranks))
            at = clock
            for name, microseconds in _layer(rank, fault).items():
                at += GAP + (500 if fault == "host" and rank == 1 and name == "vectorized_add" else 0)
                found.append((name, "7", at, microseconds))
                at += microseconds
            stall = 500 if fault == "host" else 0
            waits = last + stall - (own + (stall if rank == 1 else 0))
            wire = SENT * (5 if fault == "collective" else 1)
            found.append((MESSAGE, "20", at, waits + wire))
            clock = at + waits + wire
        marks.append((begin, clock))
    return found, marks


def _layer(rank: int, fault: str) -> dict[str, float]:
    slow = 1.4 if fault == "slow rank" and rank == 2 else 1.3 if fault == "clocks" else 1.0
    one = 6.0 if fault == "kernel" else 1.0
    return {name: own * slow * (one if name == "layer_norm_cuda" else 1.0) for name, own in KERNELS.items()}


def kineto(path: Path, rank: int, fault: str) -> Path:
    spans, marks = steps(rank, fault)
    events: list[dict[str, Any]] = [
        {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": int(stream), "ts": start, "dur": long}
        for name, stream, start, long in spans
    ]
    events += [
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{at}", "ts": start, "dur": end - start}
        for at, (start, end) in enumerate(marks)
    ]
    path.write_text(json.dumps({"traceEvents": events, "distributedInfo": {"rank": rank, "world_size": 4}}))
    return path


def sqlite(path: Path, rank: int, fault: str) -> Path:
    spans, marks = steps(rank, fault)
    names = {name: at for at, name in enumerate(dict.fromkeys(name for name, *_ in spans))}
    with sqlite3.connect(path) as file:
        file.execute("create table StringIds (id integer primary key, value text)")
        file.executemany("insert into StringIds values (?, ?)", [(at, name) for name, at in names.items()])
        columns = "(start integer, end integer, deviceId integer, streamId integer, shortName integer)"
        file.execute(f"create table CUPTI_ACTIVITY_KIND_KERNEL {columns}")
        rows = [(int(at * 1e3), int((at + us) * 1e3), rank, int(stream), names[name]) for name, stream, at, us in spans]
        file.executemany("insert into CUPTI_ACTIVITY_KIND_KERNEL values (?, ?, ?, ?, ?)", rows)
        file.execute("create table NVTX_EVENTS (start integer, end integer, text text, textId integer)")
        ranges = [(int(start * 1e3), int(end * 1e3), f"step {at}") for at, (start, end) in enumerate(marks)]
        file.executemany("insert into NVTX_EVENTS values (?, ?, ?, null)", ranges)
    return path


def of_all_ranks(path: Path, fault: str, device: bool = True, process: bool = True) -> Path:
    """One export of four processes: each has marked its steps at another time, and may see its device as number 0."""
    with sqlite3.connect(path) as file:
        file.execute("create table StringIds (id integer primary key, value text)")
        globally = (", globalPid integer", ", globalTid integer") if process else ("", "")
        columns = "start integer, end integer, deviceId integer, streamId integer, shortName integer"
        file.execute(f"create table CUPTI_ACTIVITY_KIND_KERNEL ({columns}{globally[0]})")
        file.execute("create table CUPTI_ACTIVITY_KIND_MEMCPY (start, end, deviceId, streamId, globalPid)")
        file.execute(f"create table NVTX_EVENTS (start integer, end integer, text text, textId integer{globally[1]})")
        for rank in range(4):
            spans, marks = steps(rank, fault)
            names = {name: 100 * rank + at for at, name in enumerate(dict.fromkeys(name for name, *_ in spans))}
            file.executemany("insert into StringIds values (?, ?)", [(at, name) for name, at in names.items()])
            pid, late = (0x0100_0000_0000_0000 | (4000 + rank) << 24), 5.0 * rank
            rows = [
                (int((at + late) * 1e3), int((at + late + us) * 1e3), rank if device else 0, int(stream), names[name])
                for name, stream, at, us in spans
            ]
            own = [(*row, pid) for row in rows] if process else rows
            file.executemany(f"insert into CUPTI_ACTIVITY_KIND_KERNEL values ({','.join('?' * len(own[0]))})", own)
            file.execute("insert into CUPTI_ACTIVITY_KIND_MEMCPY values (0, 10, 0, 7, ?)", (pid,))
            ranges = [
                (
                    int((start + late) * 1e3),
                    int((end + late) * 1e3),
                    f"step {at}",
                    None,
                    *([pid + 4100] if process else []),
                )
                for at, (start, end) in enumerate(marks)
            ]
            file.executemany(f"insert into NVTX_EVENTS values ({','.join('?' * len(ranges[0]))})", ranges)
    return path


def nsys_table(path: Path, rank: int, fault: str) -> Path:
    spans, _ = steps(rank, fault)
    lines = [
        f'{at * 1e3:.0f},{us * 1e3:.0f},1,NVIDIA H100 ({rank}),{stream},"{name}"' for name, stream, at, us in spans
    ]
    head = "Processing [report.sqlite] with [cuda_gpu_trace.py]...\nStart (ns),Duration (ns),CorrId,Device,Strm,Name\n"
    path.write_text(head + "\n".join(lines) + "\n")
    return path


FORMS = {"json": kineto, "sqlite": sqlite, "csv": nsys_table}


def run(folder: Path, fault: str, form: str = "json") -> list[Path]:
    return [FORMS[form](folder / f"{fault.replace(' ', '-')}-{rank}.{form}", rank, fault) for rank in range(4)]


def told(found: Blame) -> tuple[str, int | None]:
    assert found.first is not None
    return found.first.cause, found.first.rank


PLANTED = {
    "slow rank": ("slow rank", 2, LAYERS * 0.4 * sum(KERNELS.values())),
    "kernel": ("kernel", None, LAYERS * 5 * KERNELS["layer_norm_cuda"]),
    "collective": ("collective", None, LAYERS * 4 * SENT),
    "host": ("host", 1, LAYERS * 500.0),
    "clocks": ("clocks", None, LAYERS * 0.3 * sum(KERNELS.values())),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_named_with_its_seconds(fault: str, form: str, tmp_path: Path) -> None:
    found = blamed(run(tmp_path, fault, form), None, run(tmp_path, "well", form), price=3.6)
    cause, rank, microseconds = PLANTED[fault]
    assert told(found) == (cause, rank)
    assert found.first is not None
    whole = STEPS if form == "csv" else 1  # a table has no steps
    assert found.first.seconds == pytest.approx(whole * microseconds * 1e-6, rel=0.02)
    assert found.first.cost == pytest.approx(4 * found.first.seconds)  # 1,000 steps on four GPUs at 3.6 an hour
    assert found.measured - found.expected == pytest.approx(found.first.seconds, rel=0.05)
    if fault == "kernel":
        assert found.first.what == "layer_norm_cuda"
        assert found.first.times == pytest.approx(6)
    if fault == "collective":
        assert "AllReduce" in found.first.what


@pytest.mark.parametrize("fault", ["slow rank", "host"])
def test_ranks_among_themselves(fault: str, tmp_path: Path) -> None:
    found = blamed(run(tmp_path, fault), None, [])
    assert told(found) == PLANTED[fault][:2]
    assert found.against == "the fastest rank"


def test_a_run_that_is_well_has_no_fault(tmp_path: Path) -> None:
    assert blamed(run(tmp_path, "well"), None, run(tmp_path, "well")).causes == ()
    assert blamed(run(tmp_path, "well"), None, []).causes == ()


def test_more_kernels_are_more_work(tmp_path: Path) -> None:
    files = run(tmp_path, "slow rank")
    content = json.loads(files[2].read_text())
    halves: list[Any] = []
    for event in content["traceEvents"]:
        if event["cat"] == "kernel" and event["name"] != MESSAGE:
            half = {**event, "dur": event["dur"] / 2}
            halves += [half, {**half, "ts": event["ts"] + event["dur"] / 2}]
        else:
            halves.append(event)
    files[2].write_text(json.dumps({**content, "traceEvents": halves}))
    assert told(blamed(files, None, [])) == ("imbalance", 2)


@pytest.mark.parametrize("device", [True, False])
def test_each_process_of_an_export_is_a_rank_with_its_own_steps(device: bool, tmp_path: Path) -> None:
    ranks = read([of_all_ranks(tmp_path / "all.sqlite", "slow rank", device)])
    assert [one.rank for one in ranks] == [0, 1, 2, 3]
    alone = read([sqlite(tmp_path / f"{rank}.sqlite", rank, "slow rank") for rank in range(4)])
    for one, other in zip(ranks, alone, strict=True):
        assert len(one.steps) == len(other.steps) == STEPS - 1
        assert one.steps[0].counts == other.steps[0].counts
        assert one.steps[0].seconds == pytest.approx(other.steps[0].seconds)
        assert one.steps[0].kernels == pytest.approx(other.steps[0].kernels)
    well = of_all_ranks(tmp_path / "well.sqlite", "well", device)
    assert told(blamed([tmp_path / "all.sqlite"], None, [well])) == ("slow rank", 2)


def test_steps_of_nobody_known_are_refused_where_they_overlap(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="steps overlap"):
        read([of_all_ranks(tmp_path / "all.sqlite", "well", process=False)])


def test_a_database_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from foretell import files

    file = sqlite(tmp_path / "0.sqlite", 0, "well")
    usual = read([file])
    monkeypatch.setattr(files.read_bytes, "__defaults__", (len(file.read_bytes()) - 1, ""))
    with pytest.raises(BadInput, match="where at most"):
        files.read_bytes(file, "trace")
    assert read([file]) == usual


def test_operators_of_a_processor_have_their_own_seconds(tmp_path: Path) -> None:
    def event(name: str, start: float, long: float, cat: str = "cpu_op", thread: int = 1) -> dict[str, Any]:
        return {"ph": "X", "cat": cat, "name": name, "pid": 9, "tid": thread, "ts": start, "dur": long}

    events = [
        event("aten::linear", 0, 100),
        event("aten::addmm", 10, 80),
        event("c10d::allreduce_", 100, 50),
        event("gloo:all_reduce", 110, 90, "user_annotation", 2),
        event("aten::add_", 150, 20),
    ]
    file = tmp_path / "cpu.json.gz"
    file.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    (step,) = read([file])[0].steps
    assert {name: round(seconds * 1e6) for name, seconds in step.kernels.items()} == {
        "aten::linear": 20,
        "aten::addmm": 80,
        "aten::add_": 20,
    }
    assert step.exposed == pytest.approx(70e-6)
    assert step.idle == pytest.approx(10e-6)
    assert step.seconds == pytest.approx(200e-6)


def test_the_prediction_is_what_should_be(foretell: Callable[..., Any], tmp_path: Path) -> None:
    """A trace that is the predicted timeline, its kernels half as fast again."""
    from foretell.cost.price import priced
    from foretell.oracle.request import read as ask
    from foretell.oracle.resolve import resolve
    from foretell.timeline.simulate import simulate

    words = {"model": "llama:layers=4,hidden=4096,heads=32,ffn=11008,vocab=32000,seq=2048", "batch": 16}
    asked = resolve(ask(model=str(words["model"]), on="8xh100", plan="dp8 +bf16", batch=16, calibration="none"))
    played = simulate(priced(asked.setting, asked.place))
    device = {"matmul": "nvjet_gemm", "attention": "flash_fwd"}
    events = [
        {
            "ph": "X", "cat": "kernel", "pid": 0, "tid": int(one.stream != "compute"),
            "name": MESSAGE if one.stream != "compute" else "multi_tensor_adam" if one.category == "optimizer"
            else device.get(one.name.rpartition(" ")[2], "elementwise"),
            "ts": one.start * 1.5e6, "dur": one.seconds * 1.5e6,
        }
        for one in played.events if one.stream != "host"
    ]  # fmt: skip
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    ran = foretell(
        "blame", str(tmp_path / "trace.json"), "--model", words["model"], "--on", "8xh100", "--plan", "dp8 +bf16",
        "--batch", "16", "--calibration", "none", "--json",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert found["causes"][0]["cause"] == "clocks"
    assert found["causes"][0]["times"] == pytest.approx(1.5, rel=0.01)
    assert found["expected"] == pytest.approx(played.step_seconds, rel=0.05)


def test_a_collective_is_told_against_its_prediction(foretell: Callable[..., Any], tmp_path: Path) -> None:
    """The predicted timeline of a tensor axis, whose messages nothing hides, each twice as long."""
    from foretell.cost.price import priced
    from foretell.oracle.request import read as ask
    from foretell.oracle.resolve import resolve
    from foretell.timeline.simulate import simulate

    model = "llama:layers=4,hidden=4096,heads=32,ffn=11008,vocab=32000,seq=2048"
    asked = resolve(ask(model=model, on="8xh100", plan="tp8 +bf16", batch=16, calibration="none"))
    device = {"matmul": "nvjet_gemm", "attention": "flash_fwd"}
    events: list[dict[str, Any]] = []
    clock = before = 0.0
    for one in sorted(simulate(priced(asked.setting, asked.place)).events, key=lambda one: one.start):
        if one.stream == "host":
            continue
        computes = one.stream == "compute"
        name = "multi_tensor_adam" if one.category == "optimizer" else device.get(one.name.rpartition(" ")[2], "add")
        clock += max(0.0, one.start - before)
        seconds = one.seconds * (1 if computes else 2)
        message = {"all-reduce": MESSAGE, "all-gather": "ncclDevKernel_AllGather_RING_LL"}
        name = name if computes else message[one.name.partition(" ")[0]]
        row = {"ph": "X", "cat": "kernel", "pid": 0, "tid": 1, "name": name}
        events.append({**row, "ts": clock * 1e6, "dur": seconds * 1e6})
        clock, before = clock + seconds, one.start + one.seconds
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    words = ("--on", "8xh100", "--plan", "tp8 +bf16", "--batch", "16", "--calibration", "none", "--json")
    found = json.loads(foretell("blame", str(tmp_path / "trace.json"), "--model", model, *words).out)
    first = found["causes"][0]
    assert (first["cause"], first["what"]) == ("collective", "all-reduce")
    assert first["times"] == pytest.approx(2, rel=0.01)
    staged = ("--on", "8xh100", "--plan", "pp4 dp2 +m8 +bf16", "--batch", "16")
    refused = foretell("blame", str(tmp_path / "trace.json"), "--model", model, *staged)
    assert refused.code == 2
    assert "stages that wait for each other" in refused.err


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "gloo:all_reduce", "all-reduce bucket 3"), "all-reduce"),
        (("ncclDevKernel_AllGather_RING_LL", "gloo:all_gather", "all-gather layers.0..3"), "all-gather"),
        (("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", "reduce-scatter root"), "reduce-scatter"),
        (("ncclDevKernel_SendRecv", "all-to-all layers.0", "send"), "sends and all-to-all"),
    ],
)
def test_a_message_of_a_trace_and_of_a_program_are_of_one_kind(names: tuple[str, ...], kind: str) -> None:
    from foretell.oracle.kernel_families import message_kind

    assert {message_kind(one) for one in names} == {kind}


def test_the_page(foretell: Callable[..., Any], tmp_path: Path) -> None:
    def words(files: Iterable[Path]) -> list[str]:
        return [str(one) for one in files]

    slow, well = run(tmp_path, "slow rank"), run(tmp_path, "well")
    against = [word for one in words(well) for word in ("--against", one)]
    page = foretell("blame", *words(slow), *against, "--price", "2").out
    assert "slow rank  rank 2" in page
    assert "1,000 steps" in page


def test_what_cannot_be_blamed_is_refused(tmp_path: Path) -> None:
    well = run(tmp_path, "well")
    with pytest.raises(BadInput, match="nothing to hold it against"):
        blamed(well[:1], None, [])
    with pytest.raises(BadInput, match="rank 0 is there 2 times"):
        blamed([well[0], well[0]], None, [])
    with pytest.raises(BadInput, match="traces of 4 ranks against 2"):
        blamed(well, None, well[:2])
    (tmp_path / "log.txt").write_text("no trace")
    with pytest.raises(BadInput, match="no trace of a form"):
        blamed([tmp_path / "log.txt"], None, [])
    (tmp_path / "bad.sqlite").write_bytes(b"SQLite format 3\x00" + b"\x00" * 200)
    with pytest.raises(BadInput, match="Nsight"):
        blamed([tmp_path / "bad.sqlite"], None, [])


@pytest.mark.parametrize(
    ("about", "batch", "what"),
    [
        ({"rank": 0, "world_size": 2}, "16", "a run on 2 ranks, and the plan has 8"),
        ({"rank": 0, "world_size": 8}, "16", "at their peak"),
    ],
)
def test_traces_of_another_run_are_refused(
    about: dict[str, int], batch: str, what: str, foretell: Callable[..., Any], tmp_path: Path
) -> None:
    event = {"ph": "X", "cat": "kernel", "pid": 0, "tid": 7, "name": "nvjet_gemm", "ts": 0, "dur": 100_000}
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": [event], "distributedInfo": about}))
    words = ("--model", "llama3-8b", "--on", "8xh100", "--plan", "dp8:zero3 +bf16", "--batch", batch)
    ran = foretell("blame", str(tmp_path / "trace.json"), *words)
    assert ran.code == 2
    assert what in " ".join(ran.err.split())


def test_ranks_without_a_trace_are_told(foretell: Callable[..., Any], tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "kernel", "pid": 0, "tid": 7, "name": "nvjet_gemm", "ts": 0, "dur": 9_000_000}
    for rank in range(2):
        content = {"traceEvents": [event], "distributedInfo": {"rank": rank, "world_size": 8}}
        (tmp_path / f"{rank}.json").write_text(json.dumps(content))
    words = ("--model", "llama3-8b", "--on", "8xh100", "--plan", "dp8:zero3 +bf16", "--batch", "16")
    ran = foretell("blame", *(str(tmp_path / f"{rank}.json") for rank in range(2)), *words)
    assert ran.code == 0, ran.err
    assert "traces of 2 of 8 ranks" in ran.err
