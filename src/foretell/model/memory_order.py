"""Which images lie with their channels innermost because the model itself, or a compiler, turned them.

A model that norms or multiplies the channels of each position (ConvNeXt) views its images with channels last and back.
Views move nothing, and PyTorch's operators give their output the order of their input: from there on images lie with
channels innermost, whatever the trainer asked for, and convolutions run the kernels for that.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from foretell.caches import forgettable
from foretell.model.dims import Dims
from foretell.model.graph import Block, Graph, Node
from foretell.model.operators.convolution import Convolution
from foretell.model.operators.layout import View

KEEPING = frozenset({"elementwise", "broadcast", "dropout", "convolution", "pool", "normalize", "stochastic_depth"})
"""Operators whose output lies as their input does."""


@forgettable
@functools.lru_cache(maxsize=64)
def turned_convolutions(graph: Graph) -> frozenset[tuple[int, int]]:
    """The convolutions, as (block, place in it), whose input has its channels innermost by the model's own doing."""
    last: set[tuple[int, int]] = set()
    return frozenset(_found(graph, last))


@forgettable
@functools.lru_cache(maxsize=64)
def compiled_convolutions(graph: Graph) -> frozenset[tuple[int, int]]:
    """The convolutions whose images a compiler turns: all of a model or none, by what it has of them.

    The rules of PyTorch 2.13 for training (torch/_inductor/graph.py, decide_layout_opt): none where one has groups of
    several channels, or windows and half as many channels out as in, where all are narrow, or where they are few.
    """
    found = {
        (at, index): node
        for at, block in enumerate(graph.blocks)
        for index, node in enumerate(block.nodes)
        if isinstance(node.operator, Convolution)
    }
    operators = sum(len(block.nodes) * block.times for block in graph.blocks)
    times = sum(graph.blocks[at].times for at, _ in found)
    if not found or operators >= FEW * times or any(map(_stays_first, found.values())):
        return frozenset()
    return frozenset() if all(map(_is_narrow, found.values())) else frozenset(found)


FEW = 300  # operators for each convolution from which on images stay as they are
NARROW = 64  # channels


def _channels(node: Node) -> tuple[int, int, int]:
    """Groups, and channels in and out of each."""
    sizes = node.sizes()
    return int(sizes["group"]), int(sizes["in"]), int(sizes["out"])


def _stays_first(node: Node) -> bool:
    groups, ins, outs = _channels(node)
    windows = isinstance(node.operator, Convolution) and node.operator.kernel[0] > 1
    return (groups > 1 and ins > 1) or (windows and 2 * groups * outs <= ins)


def _is_narrow(node: Node) -> bool:
    groups, ins, outs = _channels(node)
    return groups * outs <= NARROW and ins <= NARROW


def _found(graph: Graph, last: set[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    for at, block in enumerate(graph.blocks):
        for index, node in enumerate(block.nodes):
            if not node.inputs:
                continue
            read = _is_last(graph, at, node.inputs[0].tensor, last)
            if isinstance(node.operator, Convolution) and read:
                yield at, index
            if _writes_last(block, node, graph, read):
                last.update((at, number) for number in node.outputs)


def _is_last(graph: Graph, at: int, number: int, last: set[tuple[int, int]]) -> bool:
    """Imports are followed to the block that made the tensor, the first time round."""
    block = graph.blocks[at]
    while number >= len(block.tensors):
        entry = block.imports[number - len(block.tensors)]
        at, number = entry.block, entry.tensor
        block = graph.blocks[at]
    return (at, number) in last


def _writes_last(block: Block, node: Node, graph: Graph, read: bool) -> bool:
    if isinstance(node.operator, View):
        before, after = graph.tensor(block, node.inputs[0].tensor).dims, graph.tensor(block, node.outputs[0]).dims
        return node.operator.function == "transpose" and _is_image(after) and not _is_image(before)
    return read and node.kind in KEEPING


def _is_image(dims: Dims) -> bool:
    """Samples, channels, and then the positions."""
    return len(dims) > 2 and dims[1].name == "channel"
