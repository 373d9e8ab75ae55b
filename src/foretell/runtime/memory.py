# pyright: basic
"""Bytes that tensors take by the allocator's own count: PyTorch's on a GPU, what the profiler notes of it on a CPU."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from foretell.runtime import alive
from foretell.runtime.appliers._replicas import bucket_bytes
from foretell.runtime.assignment import Held
from foretell.runtime.compute_emulation import is_emulated
from foretell.runtime.rehearsed_world import is_rehearsed, let_go
from foretell.runtime.subject import Subject

MARK = "foretell: the step that is watched"

SETTLED = 0.05
"""Seconds after which gloo's threads have let go of what they summed or sent last, on a busy machine too."""


class Watched:
    """One step (`with`), and what there is before it. What exists when this is made, such as data, is not counted.

    On a CPU all tensors that exist before the step are added up, with the buckets that only C++ knows; to this comes
    how far the allocator rises in the step. The profiler notes what one thread allocates and releases. What gloo's
    threads let go of last it does not see, so notes of many steps would not do.
    """

    def __init__(self, device: torch.device) -> None:
        self.peak = self.resting = self.reserved = 0
        self.alive: list[Held] = []
        self._device = device
        self._data = {place for place, _ in _storages()} if device.type == "cpu" else set[int]()

    def step(self, subject: Subject | None = None) -> Watched:
        """The step of a subject, or of whatever runs here, to be watched with `with`."""
        if self._device.type == "cpu":
            let_go()
            gc.collect()
            time.sleep(SETTLED)
            found = dict(_storages())
            own = sum(size for place, size in found.items() if place not in self._data)
            # a rank that is slowed or alone shows every tensor to Python, buckets too: they are among its own already
            hidden = subject.parts if subject and not is_emulated() and not is_rehearsed() else []
            self.resting = own + sum(map(bucket_bytes, hidden))
        else:
            self.resting = torch.cuda.memory_allocated(self._device)
        return self

    def __enter__(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            if is_rehearsed():
                alive.begin()
            return
        self._notes = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
        self._notes.__enter__()
        self._mark = torch.profiler.record_function(MARK)
        self._mark.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._device.type == "cuda":
            self.peak = torch.cuda.max_memory_allocated(self._device)
            self.reserved = torch.cuda.max_memory_reserved(self._device)
            if is_rehearsed():
                self.alive = alive.end()
            return
        self._mark.__exit__(kind, error, at)
        self._notes.__exit__(kind, error, at)
        self.peak = self.resting + self._rise()

    def _rise(self) -> int:
        """How far the allocator rose above where it began."""
        assert self._notes.profiler is not None and self._notes.profiler.kineto_results is not None
        events: list[Any] = self._notes.profiler.kineto_results.events()
        begin, end = next((one.start_ns(), one.start_ns() + one.duration_ns()) for one in events if one.name() == MARK)
        changes = sorted((one.start_ns(), one.nbytes()) for one in events if one.name() == "[memory]")
        held = most = 0
        for moment, size in changes:
            if begin <= moment <= end:
                held += size
                most = max(most, held)
        return most


def _storages() -> Iterator[tuple[int, int]]:
    """Where the memory of every tensor is that Python knows, and how much."""
    for one in gc.get_objects():
        try:
            if type(one) in (torch.Tensor, torch.nn.Parameter):  # isinstance would wake what warns when it is looked at
                storage = one.untyped_storage()
                yield storage.data_ptr(), storage.nbytes()
        except (RuntimeError, NotImplementedError, ReferenceError):
            continue  # a tensor without memory of its own
