"""What limited a measured run is named by the rules of a prediction, on what was seen."""

from __future__ import annotations

import msgspec
import pytest

import foretell
from foretell.hardware import this_machine
from foretell.hardware.catalog import cluster
from foretell.oracle.predict import Prediction, predict
from foretell.runtime.assignment import Assignment, Report
from foretell.runtime.limits import limits
from foretell.runtime.measure import measurement

LENET = Assignment(model="lenet", plan="channel2", batch=256)
CORES = this_machine.processor(2, "a core", 2**30)


@pytest.fixture(scope="module")
def predicted() -> Prediction:
    return predict(LENET.setting, CORES)


def _named(predicted: Prediction, slower: float = 1.0, **memory: int) -> dict[str, float]:
    """Names and shares of a run that went as predicted, but for the time of its messages and its memory."""
    phases = {
        name: [seconds * (slower if name.startswith("exposed.") else 1.0)]
        for name, seconds in predicted.breakdown.items()
    }
    step = sum(seconds[0] for seconds in phases.values())
    reports = [Report(rank=rank, phases=phases, busy=phases, steps=[step], **memory) for rank in (0, 1)]
    found = measurement(LENET, "channel2", 256, reports)
    return {one.name: one.share for one in limits(predicted, found, (0, 0), ())}


def test_work_that_is_done_twice_has_its_share_of_the_measured_step(predicted: Prediction) -> None:
    (said,) = [one.share for one in predicted.bottlenecks if one.name == "computation redundancy"]
    assert _named(predicted)["computation redundancy"] == pytest.approx(said)
    waiting = sum(seconds for name, seconds in predicted.breakdown.items() if name.startswith("exposed."))
    longer = _named(predicted, slower=1.5)["computation redundancy"]
    assert longer == pytest.approx(said * predicted.step_seconds / (predicted.step_seconds + 0.5 * waiting))
    assert "computation redundancy" not in _named(predicted, slower=100.0)  # not worth a word any more


def test_memory_is_judged_by_what_was_seen_of_it(predicted: Prediction) -> None:
    full = int(predicted.capacity)
    assert "memory redundancy" in _named(predicted, allocated=6 * full // 10, resting=5 * full // 10)
    assert "memory redundancy" not in _named(predicted, allocated=6 * full // 10, resting=full // 10)
    assert "memory redundancy" not in _named(predicted, allocated=4 * full // 10, resting=3 * full // 10)
    gaps = _named(predicted, allocated=85 * full // 100, reserved=95 * full // 100)
    assert gaps["memory"] == pytest.approx(0.95)
    assert gaps["memory stalling"] == pytest.approx(0.1)
    assert "memory stalling" not in _named(predicted, allocated=95 * full // 100)


def test_a_small_machine_stalls_on_the_gaps_of_its_allocator() -> None:
    """The same plan on devices with less and less memory: first enough, then gaps are too much, then tensors are."""
    asked = foretell.predict("llama3.2-1b", "8xa100-80", "dp8 +bf16", batch=8, seq=1024)
    use = asked.memory
    assert use.reserved > use.allocated
    named: list[set[str]] = []
    for share in (0.8, 0.89, 0.99):  # of a device's memory that tensors and context take
        found = cluster("8xa100-80")
        (group,) = found.groups
        size = (use.device - use.reserved + use.allocated) / share
        device = msgspec.structs.replace(group.device, memory_bytes=size)
        small = msgspec.structs.replace(found, groups=(msgspec.structs.replace(group, device=device),))
        told = foretell.predict("llama3.2-1b", small, "dp8 +bf16", batch=8, seq=1024)
        named.append({one.name for one in told.bottlenecks} & {"memory", "memory stalling"})
    assert named == [set(), {"memory", "memory stalling"}, {"memory"}]
