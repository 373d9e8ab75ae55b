# pyright: basic
"""The time that this rank's own thread stands still for others, told to the clock.

Torch waits in two places: a `Work` of a collective (FSDP2, the optimizer in shares, layers in shares), and the end of
a backward pass (DistributedDataParallel, whose buckets travel beside it). On a GPU the thread does not stand still, so
nothing is told there: what is exposed stays in its phase.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from foretell.runtime.clock import Clock

P = ParamSpec("P")
T = TypeVar("T")

_along: list[str] = []
"""The axis of the collectives that this rank's thread is in now."""

_told: list[float] = [0.0]
"""One number: seconds of all waits for a `Work` that were told until now."""

_axes: dict[frozenset[int], tuple[str, ...]] = {}
"""The axes that join each set of ranks of this run."""


@contextmanager
def along(group: dist.ProcessGroup) -> Iterator[None]:
    """While this holds, waits are for ranks of this group."""
    found = _axes.get(frozenset(dist.get_process_group_ranks(group)))
    _along.append("+".join(found) if found else group.group_desc.removeprefix("mesh_").partition("_")[0])
    try:
        yield
    finally:
        _along.pop()


def speaks(function: Callable[P, T]) -> Callable[P, T]:
    """A function that talks to other ranks. A compiler leaves it as it is, and compiles what lies between."""
    found: Any = torch.compiler.disable(function)
    return found


@contextmanager
def told(clock: Clock, works: str, axes: Mapping[frozenset[int], tuple[str, ...]]) -> Iterator[None]:
    """While this holds, every wait is told. `works` is the axis of those that nothing names; see `TorchMesh.groups`."""
    wait = dist.Work.wait
    dist.Work.wait = _timed(wait, clock, works)
    _axes.update(axes)
    try:
        yield
    finally:
        dist.Work.wait = wait
        _axes.clear()


def _timed(function: Callable[..., Any], clock: Clock, axis: str) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        result = function(*args, **kwargs)
        seconds = time.perf_counter() - start
        _told.append(_told.pop() + seconds)
        clock.waited(_along[-1] if _along else axis, seconds)
        return result

    return timed


class LastGradient:
    """Knows when the last gradient was made: what a backward pass still takes then is waiting for buckets."""

    def __init__(self, part: nn.Module, axis: str) -> None:
        self._axis, self._moment, self._before = axis, 0.0, 0.0
        for weight in part.parameters():
            if weight.requires_grad:
                weight.register_post_accumulate_grad_hook(self._note)

    def _note(self, weight: torch.Tensor) -> None:
        self._moment, self._before = time.perf_counter(), _told[-1]

    def passed(self, clock: Clock) -> None:
        """A backward pass in which gradients were summed is over. A compressor may have waited for a sum meanwhile, and
        told of it."""
        clock.waited(self._axis, time.perf_counter() - self._moment - (_told[-1] - self._before))
