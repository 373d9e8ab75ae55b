# pyright: basic
"""Where the time of a step goes on one rank, phase by phase, and how much of it is waiting for other ranks."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

BETWEEN = "step"
"""What a watcher is told when no phase runs: a pipeline's messages go there."""


class Clock:
    """Seconds of each phase, an entry for each step. Phases do not lie in each other; a watcher is told of them."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._now: dict[str, float] = defaultdict(float)
        self._in = ""
        self.steps: list[float] = []
        self.phases: dict[str, list[float]] = {}
        self.watcher: Callable[[str], None] = lambda phase: None

    def read(self) -> float:
        """Seconds, when all that was asked of the device is done."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self.watcher(name)
        self._in = name
        start = self.read()
        try:
            yield
        finally:
            self._now[name] += self.read() - start
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

    @property
    def spent(self) -> float:
        """Seconds of this step that are told."""
        return sum(self._now.values())

    @contextmanager
    def step(self) -> Iterator[None]:
        """One step; it is written down when it ends well."""
        self._now.clear()
        start = self.read()
        yield
        seconds, before = self.read() - start, len(self.steps)
        for name in {*self.phases, *self._now}:
            self.phases.setdefault(name, [0.0] * before).append(self._now.get(name, 0.0))
        self.steps.append(seconds)
