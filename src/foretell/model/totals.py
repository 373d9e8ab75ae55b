"""What the whole graph costs: sums over operators and storages, for one split or for many."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

from foretell.caches import forgettable
from foretell.model.dims import Split
from foretell.model.graph import Graph, Tensor
from foretell.model.operator import NOTHING, PARTS, OperatorPart
from foretell.units import Quantity, somewhere


@dataclass(frozen=True, slots=True)
class Totals:
    """One training step of the whole model, optimizer apart."""

    parameters: Quantity
    trainable: Quantity
    parameter_bytes: Quantity
    buffer_bytes: Quantity
    forward: OperatorPart
    input_gradient: OperatorPart
    weight_gradient: OperatorPart
    saved_bytes: Quantity

    @property
    def backward(self) -> OperatorPart:
        return self.input_gradient + self.weight_gradient


def totals(graph: Graph, split: Split | None = None) -> Totals:
    """Every quantity summed; with `split`, of one rank when these dims are shared out."""
    parts = dict.fromkeys(PARTS, NOTHING)
    for block, node in graph.nodes():
        widths = graph.widths(block, node)
        for name in PARTS:
            parts[name] = parts[name] + node.cost(name, widths, split) * block.times
    weights = [(block.times, t) for block in graph.blocks for t in block.tensors]
    parameters = [(times, t) for times, t in weights if t.role == "parameter"]
    return Totals(
        parameters=sum(times * t.elements(split) for times, t in parameters),
        trainable=sum(times * t.elements(split) for times, t in parameters if t.trainable),
        parameter_bytes=sum(times * t.bytes(split) for times, t in parameters),
        buffer_bytes=sum(times * t.bytes(split) for times, t in weights if t.role == "buffer"),
        forward=parts["forward"],
        input_gradient=parts["input_gradient"],
        weight_gradient=parts["weight_gradient"],
        saved_bytes=sum(kept.times * kept.tensor.bytes(split) for kept in saved_storages(graph)),
    )


@forgettable
@functools.lru_cache(maxsize=64)
def multiplying(like: Graph) -> tuple[tuple[int, int, tuple[str, ...]], ...]:
    """Operators with matrix work, by block and place, and the parts that have it: whatever the samples, the same."""
    found: list[tuple[int, int, tuple[str, ...]]] = []
    for at, block in enumerate(like.blocks):
        for index, node in enumerate(block.nodes):
            widths, sizes = like.widths(block, node), node.sizes()
            parts = tuple(name for name in PARTS if somewhere(node.cost_at(name, widths, sizes).matrix))
            if parts:
                found.append((at, index, parts))
    return tuple(found)


class KeptStorage(NamedTuple):
    """A storage that autograd keeps: how many of it, and the first operator that asked."""

    times: int
    tensor: Tensor
    keeper: tuple[int, int]  # block and node of who keeps it


@forgettable
@functools.lru_cache(maxsize=8)
def saved_storages(graph: Graph) -> tuple[KeptStorage, ...]:
    """The storages that autograd keeps, each with how many of it are alive at once.

    A view keeps the whole storage that it looks at, and a storage kept twice counts once.
    Weights and buffers live anyway and are left out.
    """
    repetitions: dict[tuple[int, int], set[int]] = {}
    keepers: dict[tuple[int, int], tuple[int, int]] = {}
    for at, block in enumerate(graph.blocks):
        for place, node in enumerate(block.nodes):
            for number in node.keeps:
                for repetition in range(block.times):
                    owner, tensor, copy = graph.home(at, number, repetition)
                    repetitions.setdefault((owner, tensor), set()).add(copy)
                    keepers.setdefault((owner, tensor), (at, place))
    found: list[KeptStorage] = []
    for (at, number), copies in repetitions.items():
        tensor = graph.blocks[at].tensors[number]
        if tensor.role not in ("parameter", "buffer"):
            found.append(KeptStorage(len(copies), tensor, keepers[at, number]))
    return tuple(found)
