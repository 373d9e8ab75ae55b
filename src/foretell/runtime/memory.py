# pyright: basic
"""Bytes that tensors take by the allocator's own count: PyTorch's on a GPU, what the profiler notes of it on a CPU."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile


class Watched:
    """Counts from the moment it is made; `with` marks the step whose fullest moment is asked for.

    On a CPU every allocation is written down with its size and every release too, so the count before the step
    is known to the byte: weights, states, buckets and all.
    """

    def __init__(self, device: torch.device) -> None:
        self.peak = self.resting = 0
        self._device = device
        self._notes = profile(activities=[ProfilerActivity.CPU], profile_memory=True) if device.type == "cpu" else None
        if self._notes is not None:
            self._notes.__enter__()

    def __enter__(self) -> None:
        if self._notes is None:
            self.resting = torch.cuda.memory_allocated(self._device)
            torch.cuda.reset_peak_memory_stats(self._device)
        else:
            self._mark = torch.profiler.record_function(BEGIN)
            self._mark.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._notes is None:
            self.peak = torch.cuda.max_memory_allocated(self._device)
        else:
            self._mark.__exit__(kind, error, at)

    def close(self) -> None:
        """End the notes of a CPU's allocator, and read them."""
        if self._notes is None:
            return
        notes, self._notes = self._notes, None
        notes.__exit__(None, None, None)
        assert notes.profiler is not None and notes.profiler.kineto_results is not None
        events: list[Any] = notes.profiler.kineto_results.events()
        begin, end = next((one.start_ns(), one.start_ns() + one.duration_ns()) for one in events if one.name() == BEGIN)
        changes = sorted((one.start_ns(), one.nbytes()) for one in events if one.name() == "[memory]")
        held = 0
        for moment, size in changes:
            held += size
            if moment < begin:
                self.resting = held
            elif moment <= end:
                self.peak = max(self.peak, held)
        self.peak = max(self.peak, self.resting)


BEGIN = "foretell: the step that is watched"
