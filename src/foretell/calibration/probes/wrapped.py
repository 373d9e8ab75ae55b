# pyright: basic
"""What the host does around modules that PyTorch wraps: weights in shares, or split among tensor ranks, and layers that
run again. Tensors are tiny and a process group of PyTorch's own tests moves nothing, so only the host's work is left.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch
from torch import nn

from foretell import modules
from foretell.calibration.case import Case, Scope
from foretell.cost.samples import FigureSample
from foretell.cost.wrapped_timed import AGAIN, SPLIT_BACKWARD, SPLIT_FORWARD, UNIT
from foretell.processes import each

SUMMARY = "wrapped modules"

MODEL: Final = "gpt2:layers={layers},hidden=64,heads=2,vocab=64,seq=8"
FEW, MANY = 2, 6
"""Layers of two models: what one layer takes is told by the two, whatever is around the layers."""

WIDTH, RANKS, TURNS, PATIENCE = 64, 8, 12, 120.0


def cases(scope: Scope) -> Iterator[Case]:
    if scope.device == "cuda":
        for name in (UNIT, SPLIT_FORWARD, SPLIT_BACKWARD, AGAIN):
            yield Case(FigureSample(name=name, unit="s"), lambda _, n=name: _timed(scope.device)[n])


@functools.cache
def _timed(device: str) -> dict[str, Sequence[float]]:
    """All of them in a process of its own, whose group is not that of other probes."""
    return each(functools.partial(_work, device=device), 1, PATIENCE, fork=False)[0]


def _work(rank: int, device: str) -> dict[str, Sequence[float]]:
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.set_num_threads(1)
    dist.init_process_group("fake", rank=rank, world_size=RANKS, store=FakeStore())
    forward, backward = _split(device)
    plain, again, shared = ({n: _model(n, how, device) for n in (FEW, MANY)} for how in ("", "again", "shared"))
    found: dict[str, list[float]] = {UNIT: [], AGAIN: []}
    for _ in range(TURNS):
        ahead, whole = (_layer(plain, device, both) for both in (False, True))
        found[UNIT].append(max(0.0, _layer(shared, device, True) - whole))
        found[AGAIN].append(max(0.0, _layer(again, device, True) - whole - ahead))
    return {**found, SPLIT_FORWARD: forward, SPLIT_BACKWARD: backward}


Step = Callable[[], torch.Tensor]


def _model(layers: int, how: str, device: str) -> Step:
    """A forward pass of a model with its layers wrapped."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.utils.checkpoint import checkpoint

    name = MODEL.format(layers=layers)
    made: Any = modules.build(name).to(device)
    example = modules.example(name, 1)
    inputs, target = [one.to(device) for one in example.inputs], example.target.to(device)
    for layer in made.layers:
        if how == "again":
            layer.forward = functools.partial(checkpoint, layer.forward, use_reentrant=False)
        if how == "shared":
            fully_shard(layer, mesh=init_device_mesh(device, (RANKS,)))
    if how == "shared":
        fully_shard(made, mesh=init_device_mesh(device, (RANKS,)))

    def forward() -> torch.Tensor:
        made.zero_grad(set_to_none=True)
        return example.loss(made(*inputs), target)

    for _ in range(2):
        forward().backward()
    return forward


def _layer(steps: dict[int, Step], device: str, both: bool) -> float:
    """Seconds of one layer in a forward pass, or in both."""
    few, many = (_seconds(steps[layers], device)[both] for layers in (FEW, MANY))
    return (many - few) / (MANY - FEW)


def _seconds(forward: Step, device: str) -> tuple[float, float]:
    """Of a forward pass, and of both."""
    began = _settled(device)
    loss = forward()
    middle = time.perf_counter()
    loss.backward()
    ended = time.perf_counter()
    return middle - began, ended - began


def _settled(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def _split(device: str) -> tuple[list[float], list[float]]:
    """Two products and the sum between ranks after them, more than two bare products: either pass."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    def pairs(split: bool) -> nn.Module:
        made = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2 * MANY))).to(device)
        ways: Any = {str(at): RowwiseParallel() if at % 2 else ColwiseParallel() for at in range(2 * MANY)}
        return parallelize_module(made, init_device_mesh(device, (RANKS,)), ways) if split else made

    x = torch.rand(1, 8, WIDTH, device=device, requires_grad=True)
    plain, split = (functools.partial(lambda made: made(x).sum(), pairs(one)) for one in (False, True))
    for step in (plain, split):
        step().backward()
    forward, backward = list[float](), list[float]()
    for _ in range(TURNS):
        (bare_ahead, bare), (ahead, both) = (_seconds(step, device) for step in (plain, split))
        forward.append(max(0.0, ahead - bare_ahead) / MANY)
        backward.append(max(0.0, both - ahead - (bare - bare_ahead)) / MANY)
    return forward, backward
