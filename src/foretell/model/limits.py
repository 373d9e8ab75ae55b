"""How many ranks each way of splitting can use at most, and which operator says so.

The ways of Kahira et al. (the oracle paper, Table 3): data, spatial, filter, channel, pipeline and their
pairs with data; and those of transformers: tensor, context, expert. A way that a model does not have
(experts without experts) has no limit and is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from foretell.model.graph import Block, Graph, Node, Tensor
from foretell.model.operator import NOTHING
from foretell.model.operators.attention import Attention
from foretell.model.operators.convolution import Convolution
from foretell.model.operators.experts import GroupedMatmul
from foretell.model.operators.matmul import Matmul
from foretell.model.operators.pooling import Pool
from foretell.model.operators.recurrent import Recurrent
from foretell.units import product


class Limit(msgspec.Struct, frozen=True):
    """The most ranks one way of splitting can use."""

    way: str
    ranks: int
    by: str  # path of the operator that limits it; empty when it is no single one
    rule: str


class _Bound(NamedTuple):
    """A size that ranks can share, and where it is."""

    ranks: int
    by: str


def limits(graph: Graph) -> tuple[Limit, ...]:
    """The largest number of ranks for every way that this model can be split."""
    batch = _Bound(graph.batch, "")
    spatial, filters = _least(_spatial(graph)), _least(_filters(graph))
    rules = [
        ("data", batch, "ranks <= samples in the batch"),
        ("spatial", spatial, "ranks <= positions of the smallest input of a convolution or pooling"),
        ("filter", filters, "ranks <= the fewest output channels of a convolution or dense layer"),
        ("channel", _least(_channels(graph)), "ranks <= the fewest input channels after the first layer"),
        ("pipeline", _Bound(_layers(graph), ""), "ranks <= operators that do work"),
        ("data+filter", _times(batch, filters), "ranks <= batch * fewest output channels"),
        ("data+spatial", _times(batch, spatial), "ranks <= batch * fewest positions"),
        ("tensor", _least(_key_heads(graph)), "ranks <= key and value heads, none of them copied"),
        ("heads", _least(_attention(graph, "kv_head", "share")), "ranks <= query heads, key and value heads copied"),
        ("context", _least(_attention(graph, "query")), "ranks <= queries of a sequence"),
        ("expert", _least(_experts(graph)), "ranks <= experts"),
        ("blocks", _repeated(graph), "ranks <= layers of the stacks that repeat: whole ones a pipeline stage"),
    ]
    return tuple(Limit(way, bound.ranks, bound.by, rule) for way, bound, rule in rules if bound is not None)


def _least(found: Iterator[_Bound]) -> _Bound | None:
    """The smallest bound, the first one of equals."""
    return min(found, key=lambda bound: bound.ranks, default=None)


def _times(one: _Bound, other: _Bound | None) -> _Bound | None:
    return None if other is None else _Bound(one.ranks * other.ranks, other.by)


def _spatial(graph: Graph) -> Iterator[_Bound]:
    """Positions of inputs. A convolution over a single position is a dense layer, which is not split so."""
    for block, node in graph.nodes():
        if isinstance(node.operator, Convolution | Pool) and node.inputs:
            x = graph.tensor(block, node.inputs[0].tensor)
            positions = product(dim.size for dim in x.dims[-len(node.operator.kernel) :])
            if positions > 1:
                yield _Bound(positions, node.path)


def _filters(graph: Graph) -> Iterator[_Bound]:
    for block, node in graph.nodes():
        if _is_weighted(graph, block, node):
            n = node.sizes()
            yield _Bound(n.get("group", 1) * n["out"], node.path)


def _channels(graph: Graph) -> Iterator[_Bound]:
    """Input channels of the layers that do not read the data itself (images have three)."""
    for block, node in graph.nodes():
        if not _is_weighted(graph, block, node):
            continue
        (x,) = (operand.tensor for operand in node.inputs if operand.name == "x")
        if _owner(graph, block, x).role != "input":
            n = node.sizes()
            yield _Bound(n.get("group", 1) * n["in"], node.path)


def _is_weighted(graph: Graph, block: Block, node: Node) -> bool:
    """Whether it multiplies an activation with a weight: convolutions, dense and recurrent layers."""
    if not isinstance(node.operator, Convolution | Matmul | GroupedMatmul | Recurrent):
        return False
    weights = [operand.tensor for operand in node.inputs if operand.name == "w"]
    return any(_owner(graph, block, number).role == "parameter" for number in weights)


def _owner(graph: Graph, block: Block, number: int) -> Tensor:
    """The tensor whose memory this one uses: a weight may be read through a view."""
    while True:
        if number >= len(block.tensors):
            entry = block.imports[number - len(block.tensors)]
            block, number = graph.blocks[entry.block], entry.tensor
        elif block.tensors[number].storage != number:
            number = block.tensors[number].storage
        else:
            return block.tensors[number]


def _layers(graph: Graph) -> int:
    """Operators that do work; every line of a layer file is one."""
    return sum(
        block.times
        for block, node in graph.nodes()
        if node.operator.forward(node.sizes(), graph.widths(block, node)) != NOTHING
    )


def _attention(graph: Graph, *loops: str) -> Iterator[_Bound]:
    for _, node in graph.nodes():
        if isinstance(node.operator, Attention):
            n = node.sizes()
            yield _Bound(product(n[loop] for loop in loops), node.path)


def _key_heads(graph: Graph) -> Iterator[_Bound]:
    """Heads of attention, and of the dense layers before it: some kernels are given copied heads."""
    yield from _attention(graph, "kv_head")
    for _, node in graph.nodes():
        if isinstance(node.operator, Matmul):
            heads = [dim.size for loop in node.loops if loop.name == "out" for dim in loop.dims if dim.name == "head"]
            yield from (_Bound(size, node.path) for size in heads)


def _experts(graph: Graph) -> Iterator[_Bound]:
    for _, node in graph.nodes():
        if isinstance(node.operator, GroupedMatmul):
            yield _Bound(node.sizes()["expert"], node.path)


def _repeated(graph: Graph) -> _Bound | None:
    """Layers of the stacks that have repeating blocks: every index there that has weights of its own."""
    stacks = {tuple(block.nodes[0].path.split(".")[: block.place]) for block in graph.blocks if block.times > 1}
    layers: set[tuple[str, ...]] = set()
    for block in graph.blocks:
        for tensor in block.tensors:
            parts = tensor.name.split(".")
            for stack in stacks if tensor.role == "parameter" else ():
                at = len(stack)
                if tuple(parts[:at]) == stack and at < len(parts) and parts[at].isdigit():
                    rises = [i * block.stride if block.place == at else 0 for i in range(block.times)]
                    layers |= {(*stack, str(int(parts[at]) + rise)) for rise in rises}
    names = ", ".join(".".join(stack) or "(root)" for stack in sorted(stacks))
    return _Bound(len(layers), names) if layers else None
