# pyright: basic
"""What weights in shares cost the host of a processor: hooks around each unit of FSDP2, operators on DTensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Final

import torch
from torch import nn

from foretell.calibration.case import Case, Scope
from foretell.calibration.clock import Clock
from foretell.calibration.ranks import together
from foretell.cost.samples import Figure

SUMMARY = "weights in shares"

UNITS, LAYERS, WIDE = 4, 4, 16
"""A model too small to compute: units, and dense layers with their biases in each, as many weights as a block has."""


def cases(scope: Scope) -> Iterator[Case]:
    if scope.device == "cpu":
        for name in ("shared call", "shared unit"):
            yield Case(Figure(name=name, unit="s"), lambda clock, n=name: _timed(clock.seconds)[n])


@cache
def _timed(seconds: float) -> dict[str, Sequence[float]]:
    """Both on a rank of its own, which has a group to itself."""
    return together(_work, 1, seconds)


def _work(rank: int, ranks: int, seconds: float) -> dict[str, Sequence[float]]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    clock, mesh = Clock("cpu", seconds), init_device_mesh("cpu", (1,))
    share = distribute_tensor(torch.ones(8), mesh, [Shard(0)])
    plain, shared = _step(shard=False), _step(shard=True)
    pairs = zip(clock.times(shared), clock.times(plain), strict=False)
    return {
        "shared call": clock.times(lambda: share.mul_(1.0)),
        "shared unit": [max(0.0, with_hooks - without) / UNITS for with_hooks, without in pairs],
    }


def _step(shard: bool) -> Callable[[], None]:
    """Both passes of a small model, its weights in shares or not."""
    from torch.distributed.fsdp import fully_shard

    units = [nn.Sequential(*(nn.Linear(WIDE, WIDE) for _ in range(LAYERS))) for _ in range(UNITS)]
    model = nn.Sequential(*units)
    for part in (*units, model) if shard else ():
        fully_shard(part)
    x: Final = torch.ones(1, WIDE)

    def step() -> None:
        model.zero_grad()
        model(x).sum().backward()

    return step
