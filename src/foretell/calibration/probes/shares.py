# pyright: basic
"""What weights in shares cost the thread of a processor: hooks around each unit of FSDP2, copies of its weights into
messages and out of them, operators on DTensors."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Final

import torch
from torch import nn

from foretell.calibration.case import Case, Scope
from foretell.calibration.clock import DeviceClock
from foretell.calibration.ranks import together
from foretell.cost.samples import FigureSample

SUMMARY = "weights in shares"

UNITS, LAYERS = 4, 4
"""Of a model: units, and dense layers with their biases in each, as many weights as a block has."""

NARROW, WIDE = 16, 512
"""Widths: too small to copy anything, and of 4 MB a unit."""


def cases(scope: Scope) -> Iterator[Case]:
    if scope.device == "cpu":
        for name in ("shared call", "shared unit", "shared byte"):
            yield Case(FigureSample(name=name, unit="s"), lambda clock, n=name: _timed(scope, clock.seconds)[n])


@cache
def _timed(scope: Scope, seconds: float) -> dict[str, Sequence[float]]:
    """All of them on a rank of its own, which has a group to itself."""
    return together(_work, 1, seconds, fork=not torch.cuda.is_available())  # FSDP2 looks for accelerators


def _work(rank: int, ranks: int, seconds: float) -> dict[str, Sequence[float]]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    clock, mesh = DeviceClock("cpu", seconds), init_device_mesh("cpu", (1,))
    share = distribute_tensor(torch.ones(8), mesh, [Shard(0)])
    hooks = _each_unit(clock, NARROW)
    moved = 4 * LAYERS * (WIDE + 1) * WIDE
    once = statistics.median(hooks)
    return {
        "shared call": clock.times(lambda: share.mul_(1.0)),
        "shared unit": hooks,
        "shared byte": [max(0.0, seconds - once) / moved for seconds in _each_unit(clock, WIDE)],
    }


def _each_unit(clock: DeviceClock, wide: int) -> list[float]:
    """Seconds that a unit takes longer in both passes of a step because its weights are in shares."""
    plain, shared = _step(wide, shard=False), _step(wide, shard=True)
    pairs = zip(clock.times(shared), clock.times(plain), strict=False)
    return [max(0.0, in_shares - whole) / UNITS for in_shares, whole in pairs]


def _step(wide: int, shard: bool) -> Callable[[], None]:
    """Both passes of a model, its weights in shares or not."""
    from torch.distributed.fsdp import fully_shard

    units = [nn.Sequential(*(nn.Linear(wide, wide) for _ in range(LAYERS))) for _ in range(UNITS)]
    model = nn.Sequential(*units)
    for part in (*units, model) if shard else ():
        fully_shard(part)
    x: Final = torch.ones(1, wide)

    def step() -> None:
        model.zero_grad()
        model(x).sum().backward()

    return step
