"""Following a tensor that a block imports or views to the block that made it."""

from __future__ import annotations

from foretell.model.graph import Graph


def alias_source(graph: Graph, at: int, number: int) -> tuple[int, int]:
    """Follow imports to the (block, tensor) that a number means the first time."""
    while number >= len(graph.blocks[at].tensors):
        entry = graph.blocks[at].imports[number - len(graph.blocks[at].tensors)]
        at, number = entry.block, entry.tensor
    return at, number


def storage_owner(graph: Graph, at: int, number: int) -> tuple[int, int]:
    """Follow imports and views to the (block, tensor) whose memory it is, the first time."""
    return graph.home(at, number)[:2]
