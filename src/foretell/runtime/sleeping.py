# pyright: basic
"""A kernel that sleeps on a stream of a GPU for so many seconds: it counts cycles, and cycles get longer under load.

Beside products that draw all power an H200 slept 1.45 times as long as the same count took alone
(studies/h200_rehearsals/probe.json). So every longer sleep is timed by events of the device, and the next ones are
counted by what the last ones showed.
"""

from __future__ import annotations

import functools
from statistics import median
from typing import Any

import torch

LONG = 1e-4
"""Seconds from which on a sleep is timed: a shorter one is launched and ended for a good part of it."""

KEPT = 9
"""Sleeps whose median says how fast cycles are."""


class CycleRate:
    """Cycles of a second, from sleeps that were asked for and what they took."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._timed: list[tuple[float, Any, Any]] = []  # cycles, and events before and after them

    def cycles(self, seconds: float) -> int:
        """How many a sleep has, by all that is known by now."""
        if len(self._timed) >= KEPT and all(end.query() for _, _, end in self._timed):
            self.rate = median(cycles / (begin.elapsed_time(end) / 1e3) for cycles, begin, end in self._timed)
            self._timed.clear()
        return round(seconds * self.rate)

    def note(self, cycles: float, begin: Any, end: Any) -> None:
        """A sleep that was begun between two events."""
        if len(self._timed) < KEPT:
            self._timed.append((cycles, begin, end))


def sleep(seconds: float, device: torch.device) -> None:
    """Have the stream that is current sleep; nobody waits here."""
    if seconds <= 0:
        return
    rate = _rate(device)
    cycles = rate.cycles(seconds)
    if seconds < LONG:
        torch.cuda._sleep(cycles)
        return
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    torch.cuda._sleep(cycles)
    end.record()
    rate.note(cycles, begin, end)


@functools.cache
def _rate(device: torch.device) -> CycleRate:
    """As it is when the GPU does nothing else."""
    cycles, begin, end = 10_000_000, *(torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(cycles)
    begin.record()
    torch.cuda._sleep(cycles)
    end.record()
    torch.cuda.synchronize(device)
    return CycleRate(cycles / (begin.elapsed_time(end) / 1e3))
