# pyright: basic
"""LoRA: weights are frozen, and two thin matrices beside each dense layer of the layers that repeat are trained.

They are layers of their own under the names that the program has for them, so that whoever cuts layers cuts them too.
The layer itself stays apart from them (`base`): what is said to other ranks about it is not said about its adapter.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Iterator
from itertools import starmap
from typing import Any

import torch
from torch import nn

from foretell.model.adapters import EMBEDDINGS, Places, adaptable, tables
from foretell.model.graph import Graph
from foretell.modules._experts import GroupedLinear
from foretell.plan.policies.lora import Lora
from foretell.plan.policies.targets import Targets
from foretell.plan.setting import Setting
from foretell.runtime.division import of_repetition
from foretell.runtime.subject import Subject

ORDER = 12


def refusals(part: Lora, setting: Setting) -> Iterator[tuple[str, str]]:
    return iter(())


def apply(part: Lora, subject: Subject) -> None:
    if not part.rank:
        return
    graph, where = subject.setting.graph, subject.setting.plan.policy(Targets).where
    names = dense(graph, tuple(word for word in where if word != EMBEDDINGS))
    whole = _weights_of(graph, tables(graph)) if EMBEDDINGS in where else frozenset[str]()
    for own in subject.parts:
        for name, weight in own.named_parameters():
            weight.requires_grad_(name in whole)
        for name, module in list(own.named_modules()):
            if name in names:
                assert isinstance(module, nn.Linear | GroupedLinear), f"{name} is dense, and no dense layer"
                _adapt(name, module, part.rank)


def dense(graph: Graph, only: tuple[str, ...] = ()) -> frozenset[str]:
    """The paths of the layers that have an adapter."""
    found = [(graph.blocks[at], graph.blocks[at].nodes[index].path) for at, index in adaptable(graph, only)]
    return frozenset(of_repetition(block, path, at) for block, path in found for at in range(block.times))


def _weights_of(graph: Graph, places: Places) -> frozenset[str]:
    """The names of the weights that some operators read."""
    read = (
        (graph.blocks[at], operand.tensor) for at, index in places for operand in graph.blocks[at].nodes[index].inputs
    )
    return frozenset(tensor.name for tensor in starmap(graph.tensor, read) if tensor.role == "parameter")


def _adapt(name: str, module: Any, rank: int) -> None:
    """y = W x + B A x: A small and random, the same on all ranks whatever layers they have; B nothing at first."""
    module.lora_a, module.lora_b = _thin(module, rank)
    numbers = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    shape: torch.Size = module.lora_a.weight.shape
    inputs = shape[1]  # of a dense layer's [out, in] and of an expert's [expert, in, out]
    first = torch.randn(shape, generator=numbers, dtype=torch.float64) * inputs**-0.5
    module.lora_a.weight = nn.Parameter(first.to(module.weight))
    module.lora_b.weight = nn.Parameter(module.weight.new_zeros(module.lora_b.weight.shape))
    module.base = module.forward
    module.forward = functools.partial(_adapted, module)


def _thin(module: nn.Linear | GroupedLinear, rank: int) -> tuple[Any, Any]:
    """The two matrices, without values yet."""
    with torch.device("meta"):
        if isinstance(module, GroupedLinear):
            experts, inputs, outputs = module.weight.shape
            return GroupedLinear(experts, inputs, rank), GroupedLinear(experts, rank, outputs)
        outputs, inputs = module.weight.shape
        return nn.Linear(inputs, rank, bias=False), nn.Linear(rank, outputs, bias=False)


def is_adapted(module: nn.Module) -> bool:
    return hasattr(module, "lora_a")


def seam(module: nn.Module) -> str:
    """What to change of a layer to change how it multiplies, and leave its adapter alone."""
    return "base" if is_adapted(module) else "forward"


def _adapted(module: Any, x: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
    return module.base(x, *more) + module.lora_b(module.lora_a(x, *more), *more)
