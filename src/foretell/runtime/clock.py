# pyright: basic
"""Where the time of a step goes on one rank, phase by phase, and how much of it is waiting for other ranks.

On a processor a phase has two times: as the wall's clock shows it, and as long as this rank's own thread had a core.
What lies between them is waiting, or other programs of the machine. On a GPU the host runs ahead; events on the device
mark where phases begin and end, and nobody waits for them before the step is over.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple, Protocol

import torch

from foretell.runtime import journal

BETWEEN = "step"
"""What a watcher is told when no phase runs: a pipeline's messages go there."""


class ClockSpan(NamedTuple):
    """Seconds between two marks: by the wall's clock, and of this thread on a core."""

    seconds: float
    busy: float


class Marks(Protocol):
    """Moments on a device."""

    def now(self) -> Any:
        """A mark, made without waiting for anything."""
        ...

    def between(self, start: Any, end: Any) -> ClockSpan:
        """The time between two marks that the device has passed."""
        ...

    def settle(self) -> None:
        """Wait until all that was asked of the device is done."""
        ...


class HostMarks:
    """The host computes itself."""

    slept: ClassVar[float] = 0.0
    """Seconds in which it slept to compute slowly (`pace.py`): the slow core that it stands for was busy then."""

    def now(self) -> tuple[float, float]:
        return time.perf_counter(), time.thread_time() + HostMarks.slept

    def between(self, start: tuple[float, float], end: tuple[float, float]) -> ClockSpan:
        return ClockSpan(end[0] - start[0], end[1] - start[1])

    def settle(self) -> None:
        pass


class DeviceMarks:
    """Events in the queue of a GPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def now(self) -> torch.cuda.Event:
        mark = torch.cuda.Event(enable_timing=True)
        mark.record(torch.cuda.current_stream(self._device))
        return mark

    def between(self, start: torch.cuda.Event, end: torch.cuda.Event) -> ClockSpan:
        seconds = start.elapsed_time(end) / 1e3
        return ClockSpan(seconds, seconds)

    def settle(self) -> None:
        torch.cuda.synchronize(self._device)


class Clock:
    """Seconds of each phase, an entry for each step. Phases do not lie in each other; a watcher is told of them."""

    def __init__(self, device: torch.device) -> None:
        self._marks: Marks = DeviceMarks(device) if device.type == "cuda" else HostMarks()
        self._spans: list[tuple[str, Any, Any]] = []  # phases of this step that are not added up yet
        self._now: dict[str, float] = defaultdict(float)
        self._busy: dict[str, float] = defaultdict(float)
        self._in = ""
        self.steps: list[float] = []
        self.phases: dict[str, list[float]] = {}
        self.busy: dict[str, list[float]] = {}
        self.watcher: Callable[[str], None] = lambda phase: None

    def read(self) -> float:
        """Seconds, when all that was asked of the device is done."""
        self._marks.settle()
        return time.perf_counter()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self.watcher(name)
        journal.here().entered(name)
        self._in = name
        start = self._marks.now()
        try:
            yield
        finally:
            self._spans.append((name, start, self._marks.now()))
            self._in = ""
            self.watcher(BETWEEN)

    def waited(self, axis: str, seconds: float) -> None:
        """Of the phase that runs, so much was waiting for ranks along an axis. Between phases nothing is said."""
        if self._in:
            self._now[self._in] -= seconds
            self._now[f"exposed.{axis}"] += seconds

    def add(self, name: str, seconds: float) -> None:
        """Seconds that lie in no phase."""
        self._now[name] += seconds

    @contextmanager
    def between_phases(self, name: str) -> Iterator[None]:
        """What of this lies in no phase. Nobody waits for the device before it ends: what others send to a rank that is
        rehearsed is on its way already."""
        told, first, start = sum(self._now.values()), len(self._spans), self._marks.now()
        yield
        end = self._marks.now()
        self._marks.settle()
        earlier = sum(self._marks.between(*marks).seconds for _, *marks in self._spans[:first])
        self._add_up()
        inside = sum(self._now.values()) - told - earlier
        self._now[name] += self._marks.between(start, end).seconds - inside

    def _add_up(self) -> None:
        self._marks.settle()
        for name, start, end in self._spans:
            span = self._marks.between(start, end)
            self._now[name] += span.seconds
            self._busy[name] += span.busy
        self._spans.clear()

    @contextmanager
    def step(self) -> Iterator[None]:
        """One step; it is written down when it ends well."""
        for started in (self._spans, self._now, self._busy):
            started.clear()
        start = self.read()
        yield
        seconds, before = self.read() - start, len(self.steps)
        self._add_up()
        for kept, now in ((self.phases, self._now), (self.busy, self._busy)):
            for name in {*kept, *now}:
                kept.setdefault(name, [0.0] * before).append(now.get(name, 0.0))
        self.steps.append(seconds)

    def last(self, loss: float | None) -> journal.StepEnded:
        """The step that ended last."""
        return journal.StepEnded(self.steps[-1], {name: times[-1] for name, times in self.phases.items()}, loss)
