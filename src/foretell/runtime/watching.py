# pyright: basic
"""One step of a rank under torch's profiler: what it did and when, on each of its threads and on its GPU."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from foretell.runtime.assignment import Happening
from foretell.runtime.clock import BETWEEN, Clock

PHASE = "phase: "
"""How the marks begin that tell a step's phases apart."""

SHORTEST = 1000
"""Nanoseconds below which something is left out: nobody would see it."""

PHASES, DEVICE = "phases", "device"


class Watching:
    """A step (`with`) whose happenings are kept."""

    def __init__(self, device: torch.device, clock: Clock) -> None:
        self.found: list[Happening] = []
        self._clock = clock
        kinds = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type == "cuda" else [])
        self._profile = profile(activities=kinds)
        self._phase = ExitStack()

    def __enter__(self) -> Watching:
        self._before, self._clock.watcher = self._clock.watcher, self._told
        self._profile.__enter__()
        return self

    def _told(self, phase: str) -> None:
        """A phase begins, or the one before ends."""
        self._phase.close()
        if phase != BETWEEN:
            self._phase.enter_context(torch.profiler.record_function(f"{PHASE}{phase}"))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._phase.close()
        self._clock.watcher = self._before
        self._profile.__exit__(kind, error, at)
        assert self._profile.profiler is not None and self._profile.profiler.kineto_results is not None
        self.found = happenings(self._profile.profiler.kineto_results.events())


def happenings(events: list[Any]) -> list[Happening]:
    """What the profiler noted, in order of time; threads are numbered as they come."""
    threads: dict[int, str] = {}
    found: list[Happening] = []
    for one in sorted(events, key=lambda one: one.start_ns()):
        if one.duration_ns() < SHORTEST or one.name() == "[memory]":
            continue
        name = one.name()
        if name.startswith(PHASE):
            thread, name = PHASES, name.removeprefix(PHASE)
        elif "CUDA" in str(one.device_type()):
            thread = f"{DEVICE}, stream {one.device_resource_id()}"
        else:
            thread = threads.setdefault(one.start_thread_id(), f"thread {len(threads)}")
        found.append(Happening(name, thread, one.start_ns(), one.duration_ns()))
    return found
