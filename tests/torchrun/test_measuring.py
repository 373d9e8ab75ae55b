"""What a run measures: a thread's own time beside the wall's, and one step as the profiler saw it on every rank."""

from __future__ import annotations

from pathlib import Path

import torch

from foretell.oracle.anchors import read
from foretell.runtime.assignment import Assignment
from foretell.runtime.clock import Clock, ClockSpan
from foretell.runtime.launch import Ranks
from foretell.runtime.recording import recorded
from foretell.runtime.tracing import merged

LENET = Assignment(model="lenet", plan="dp2", batch=8, steps=3, traced=True)


def test_a_step_is_seen_on_every_rank_and_its_record_is_an_anchor(ranks: Ranks, tmp_path: Path) -> None:
    reports = ranks.run(LENET)
    for report in reports:
        names = {one.name for one in report.trace if one.thread == "phases"}
        assert {"forward", "backward", "optimizer"} <= names
        assert any(one.name.startswith("aten::") for one in report.trace)
        assert len(report.steps) == 3  # the step that was watched is not measured
        for name, seconds in report.busy.items():
            assert all(own >= 0 for own in seconds) and len(seconds) == 3, name
    processes = {one["pid"] for one in merged(reports, None)["traceEvents"]}
    assert len(processes) == 2
    found = recorded(LENET, reports, str(tmp_path))
    assert Path(found.record).stat().st_size < 50_000  # without the trace
    anchor = read(Path(found.record))
    assert anchor.step_seconds == found.step_seconds and anchor.parts == found.breakdown
    assert anchor.asked["plan"] == "dp2" and anchor.asked["batch"] == 8 and anchor.memory_bytes == 0


class _Ticking:
    """Marks that are a second apart, half of which the thread has a core."""

    def __init__(self) -> None:
        self.ticks = self.settled = 0

    def now(self) -> int:
        self.ticks += 1
        return self.ticks

    def between(self, start: int, end: int) -> ClockSpan:
        return ClockSpan(float(end - start), (end - start) / 2)

    def settle(self) -> None:
        self.settled += 1


def test_waiting_is_not_ones_own_time() -> None:
    clock = Clock(torch.device("cpu"))
    clock._marks = _Ticking()
    with clock.step():
        with clock.phase("forward"):
            clock.waited("tp", 0.25)
        clock.add("bubble", 3.0)
    assert clock.phases == {"forward": [0.75], "exposed.tp": [0.25], "bubble": [3.0]}
    assert clock.busy == {"forward": [0.5]}


def test_what_lies_between_phases_waits_for_nothing_at_its_beginning() -> None:
    """Messages of others are under way then: a clock that waited for the device would wait for the last of them."""
    clock, marks = Clock(torch.device("cpu")), _Ticking()
    clock._marks = marks
    with clock.step():
        with clock.phase("input"):
            pass
        marks.settled = 0
        with clock.between_phases("bubble"):
            assert marks.settled == 0
            with clock.phase("forward"):
                pass
            with clock.phase("backward"):
                pass
    assert clock.phases == {"input": [1.0], "forward": [1.0], "backward": [1.0], "bubble": [3.0]}
