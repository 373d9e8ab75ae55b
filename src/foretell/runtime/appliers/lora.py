# pyright: basic
"""LoRA: weights are frozen, and two thin matrices beside each dense layer of the layers that repeat are trained."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from foretell.model.adapters import adaptable
from foretell.model.graph import Graph
from foretell.model.operators.experts import GroupedMatmul
from foretell.plan.policies.lora import Lora
from foretell.plan.setting import Setting
from foretell.runtime.division import of_repetition
from foretell.runtime.subject import Subject

ORDER = 12

ALONE = ("filter", "channel", "spatial")
"""Strategies that cut layers otherwise."""


def refusals(part: Lora, setting: Setting) -> Iterator[tuple[str, str]]:
    beside = [axis.word for axis in setting.plan.axes if axis.word in ALONE and axis.world > 1]
    if part.rank and beside:
        yield f"+lora{part.rank} beside {beside[0]} does not run yet", "dp, tp, pp and cp"
    experts = [node.path for _, node in setting.graph.nodes() if isinstance(node.operator, GroupedMatmul)]
    if part.rank and experts:
        yield f"+lora{part.rank}: adapters of experts ({experts[0]}) do not run yet", "a model without experts"


def apply(part: Lora, subject: Subject) -> None:
    if not part.rank:
        return
    names = _dense(subject.setting.graph)
    for own in subject.parts:
        own.requires_grad_(False)
        for name, module in list(own.named_modules()):
            if name in names:
                assert isinstance(module, nn.Linear), f"{name} is dense, and no dense layer"
                _adapt(name, module, part.rank)


def _dense(graph: Graph) -> frozenset[str]:
    """The paths of the layers that have an adapter."""
    found = [(graph.blocks[at], graph.blocks[at].nodes[index].path) for at, index in adaptable(graph)]
    return frozenset(of_repetition(block, path, at) for block, path in found for at in range(block.times))


def _adapt(name: str, module: Any, rank: int) -> None:
    """y = W x + B A x: A small and random, the same on all ranks whatever layers they have; B nothing at first."""
    numbers = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    rows, columns = module.weight.shape
    first = torch.randn(rank, columns, generator=numbers, dtype=torch.float64) * columns**-0.5
    module.lora_a = nn.Parameter(first.to(module.weight))
    module.lora_b = nn.Parameter(module.weight.new_zeros(rows, rank))
    module.forward = functools.partial(_adapted, module)


def is_adapted(module: nn.Module) -> bool:
    return hasattr(module, "lora_a")


def _adapted(module: Any, x: torch.Tensor) -> torch.Tensor:
    return F.linear(x, module.weight, module.bias) + F.linear(F.linear(x, module.lora_a), module.lora_b)
