"""Which images lie with their channels innermost because the model itself turned them.

A model that norms or multiplies the channels of each position (ConvNeXt) views its images with channels last and back.
Views move nothing, and PyTorch's operators give their output the order of their input: from there on images lie with
channels innermost, whatever the trainer asked for, and convolutions run the kernels for that.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from foretell.model.dims import Dims
from foretell.model.graph import Block, Graph, Node
from foretell.model.operators.convolution import Convolution
from foretell.model.operators.layout import View

KEEPING = frozenset({"elementwise", "broadcast", "dropout", "convolution", "pool", "normalize", "stochastic_depth"})
"""Operators whose output lies as their input does."""


@functools.lru_cache(maxsize=64)
def turned_convolutions(graph: Graph) -> frozenset[tuple[int, int]]:
    """The convolutions, as (block, place in it), whose input has its channels innermost by the model's own doing."""
    last: set[tuple[int, int]] = set()
    return frozenset(_found(graph, last))


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
