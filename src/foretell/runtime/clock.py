# pyright: basic
"""Where the time of a step goes on one rank, phase by phase."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


class Clock:
    """Seconds of each phase, a list entry a step. Phases do not lie in each other; a watcher is told of them."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._now: dict[str, float] = defaultdict(float)
        self.steps: list[float] = []
        self.phases: dict[str, list[float]] = {}
        self.watcher: Callable[[str], None] = lambda phase: None

    def read(self) -> float:
        """Seconds, when all that was asked of the device is done."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()

    @property
    def spent(self) -> float:
        """Seconds of this step that phases have."""
        return sum(self._now.values())

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self.watcher(name)
        start = self.read()
        try:
            yield
        finally:
            self.add(name, self.read() - start)

    def add(self, name: str, seconds: float) -> None:
        """Seconds that belong to a phase; negative ones are taken from it."""
        self._now[name] += seconds

    @contextmanager
    def step(self) -> Iterator[None]:
        """One step; it is written down when it ends well."""
        self._now.clear()
        start = self.read()
        yield
        seconds = self.read() - start
        before = len(self.steps)
        for name in (*self.phases, *self._now):
            self.phases.setdefault(name, [0.0] * before)
        for name, column in self.phases.items():
            column.append(self._now.get(name, 0.0)) if len(column) == before else None
        self.steps.append(seconds)
