"""What `compare` tells of a run: phases and ranks outside their band, by name; and traces of both sides in one file."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.cost.price import priced
from foretell.hardware import this_machine
from foretell.oracle.predict import Prediction, predict
from foretell.runtime.assignment import Assignment, Happening, HeldOutCheck, Report
from foretell.runtime.measure import Measurement, measurement
from foretell.runtime.outside import STRAGGLES, outside
from foretell.runtime.tracing import FIRST, exposed_seconds, merged
from foretell.timeline.simulate import simulate

LENET = Assignment(model="lenet", plan="dp4", batch=8)
CORES = this_machine.processor(4, "a core", 2**30)


@pytest.fixture(scope="module")
def predicted() -> Prediction:
    return predict(LENET.setting, CORES)


def _measured(predicted: Prediction, **changes: Any) -> Measurement:
    """A run that went exactly as it was predicted, but for some phases of some ranks."""
    reports: list[Report] = []
    for rank in range(4):
        phases = {name: [seconds * changes.get(f"{name}.{rank}", 1.0)] for name, seconds in predicted.breakdown.items()}
        share = changes.get("busy", 1.0)
        busy = {name: [seconds[0] * share] for name, seconds in phases.items()}
        total = sum(seconds[0] for seconds in phases.values())
        steps = [total] * 9 + [total * changes.get("late", 1.0)] * 2
        phases = {name: seconds * 11 for name, seconds in phases.items()}
        busy = {name: seconds * 11 for name, seconds in busy.items()}
        reports.append(Report(rank=rank, phases=phases, busy=busy, steps=steps, losses=[1.0], allocated=10, resting=5))
    return measurement(LENET, "dp4", 8, reports)


def _kinds(predicted: Prediction, **changes: Any) -> list[tuple[str, str]]:
    found = outside(predicted, _measured(predicted, **changes), (0, 0, 0, 0))
    for one in found:
        assert not one.low <= one.seconds <= one.high
    return [(one.kind, one.name) for one in found]


def test_a_run_that_went_as_predicted_is_no_surprise(predicted: Prediction) -> None:
    assert _kinds(predicted) == []


def test_a_straggler_is_named(predicted: Prediction) -> None:
    assert ("straggler", "rank 2") in _kinds(predicted, **{"backward.2": 3.0})
    assert not [
        name for kind, name in _kinds(predicted, **{"backward.2": 3.0}) if kind == "straggler" and name != "rank 2"
    ]


def test_ranks_of_other_stages_are_no_peers(predicted: Prediction) -> None:
    found = outside(predicted, _measured(predicted, **{"backward.2": 3.0}), (0, 1, 2, 3))
    assert not [one for one in found if one.kind == "straggler"]


def test_slow_messages_are_congestion_and_slow_ranks_are_not(predicted: Prediction) -> None:
    messages = {f"exposed.dp.{rank}": 40.0 for rank in range(4)}
    assert ("congestion", "exposed.dp") in _kinds(predicted, **messages)
    computing = {f"backward.{rank}": 40.0 for rank in range(4)}
    kinds = _kinds(predicted, **messages, **computing)
    assert ("phase", "backward") in kinds and "congestion" not in [kind for kind, _ in kinds]


def test_other_programs_are_seen(predicted: Prediction) -> None:
    assert ("other programs", "rank 3") in _kinds(predicted, busy=0.5)


def test_steps_that_lie_apart(predicted: Prediction) -> None:
    assert ("spread", "step") in _kinds(predicted, late=3.0)


@given(st.integers(0, 3), st.floats(0.5, STRAGGLES - 0.02))
def test_small_differences_are_not_told(rank: int, times: float) -> None:
    found = predict(LENET.setting, CORES)
    assert not [
        name
        for kind, name in _kinds(found, **{f"forward.{rank}": times})
        if kind == "straggler" and name == f"rank {rank}"
    ]


# traces


def test_both_sides_in_one_file() -> None:
    setting = LENET.setting
    reports = [
        Report(
            rank=rank,
            place={"dp": rank},
            trace=[
                Happening("forward", "phases", 5_000 + rank, 4_000),
                Happening("aten::add", "thread 0", 6_000, 1_500),
            ],
        )
        for rank in range(2)
    ]
    found = merged(reports, simulate(priced(setting, CORES)))["traceEvents"]
    names = {one["pid"]: one["args"]["name"] for one in found if one["name"] == "process_name"}
    assert names[FIRST + 1] == "measured, rank 1 (dp 1)" and names[0].startswith("predicted, ")
    ours = [one for one in found if one["pid"] >= FIRST and one["ph"] == "X"]
    assert min(one["ts"] for one in ours) == 0 and {one["dur"] for one in ours} == {4.0, 1.5}
    rows = {(one["pid"], one["tid"]) for one in found if one["name"] == "thread_name"}
    assert {(one["pid"], one["tid"]) for one in found if one["ph"] == "X"} <= rows


SPANS = st.lists(st.tuples(st.booleans(), st.integers(0, 60), st.integers(1, 30)), max_size=8)


@given(SPANS)
def test_exposed_is_talking_without_computing(spans: list[tuple[bool, int, int]]) -> None:
    trace = [
        Happening("ncclKernel" if talks else "gemm", "device, stream 7", start, long) for talks, start, long in spans
    ]
    trace.append(Happening("nccl:all_reduce", "thread 0", 0, 1000))  # the host's part of it is no waiting
    moments = range(100)
    talking = {at for talks, start, long in spans if talks for at in moments if start <= at < start + long}
    computing = {at for talks, start, long in spans if not talks for at in moments if start <= at < start + long}
    assert exposed_seconds(trace) == pytest.approx(len(talking - computing) / 1e9)


def test_what_a_gpu_waited_for_lies_in_its_backward_pass() -> None:
    phases = {"forward": [1.0], "backward": [3.0]}
    made = measurement(LENET, "dp4", 8, [Report(rank=0, phases=phases, steps=[4.0], losses=[1.0], exposed={"dp": 0.5})])
    assert made.breakdown == {"forward": 1.0, "backward": 2.5, "exposed.dp": 0.5, "other": 0.0}


def test_looks_at_held_out_data_are_part_of_a_measurement() -> None:
    check = HeldOutCheck(step=1, samples=8, seconds=1.0, loss=2.0, metric=0.5)
    made = measurement(LENET, "dp4", 8, [Report(rank=0, steps=[1.0], losses=[1.0], checks=[check])])
    assert msgspec.convert(msgspec.to_builtins(made), Measurement).validation == (check,)
