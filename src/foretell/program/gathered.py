"""Operands that lie in shares and are gathered for the operators that read them: copies, and how long they live.

A copy lives until the last operator of its block that reads it. Where an operator's backward pass needs what it read
(the input of a product whose weight is trained), autograd keeps the copy instead of the share, unless the trainer
gathers it again there (Megatron's layers).
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple, TypeAlias

import msgspec

from foretell.model.evaluated import trains
from foretell.model.graph import Graph
from foretell.plan.placement import Placement, Replicated
from foretell.program.sharding.layout import Layout
from foretell.program.sharding.propagate import PlacementChange

Versions: TypeAlias = dict[tuple[int, int], dict[int, dict[str, Placement]]]
"""By operator (block, node): the tensors that are gathered, and how they lie along the axes where they are."""


class GatheredCopies(NamedTuple):
    """Where copies begin, after which operator nobody reads them any more, and which operator keeps them first."""

    begins: Versions
    ends: Versions
    keepers: dict[tuple[int, int], int]


def gathered_copies(layout: Layout) -> GatheredCopies:
    """The copies of a layout."""
    last = {
        (at, operand.tensor): index
        for at, block in enumerate(layout.graph.blocks)
        for index, node in enumerate(block.nodes)
        for operand in node.inputs
    }
    begins: Versions = defaultdict(dict)
    ends: Versions = defaultdict(dict)
    first: dict[tuple[int, int], int] = {}
    again: set[tuple[int, int]] = set()
    for axis, one in zip(layout.axes, layout.spreads, strict=True):
        for change in one.changes:
            place = change.block, change.tensor
            if change.phase == "backward" and not change.gradient and isinstance(change.target, Replicated):
                again.add(place)
            if _copies(change):
                first[place] = min(change.node, first.get(place, change.node))
                for found, node in ((begins, change.node), (ends, last[place])):
                    found[change.block, node].setdefault(change.tensor, {})[axis.name] = change.target
    keepers: dict[tuple[int, int], int] = {}
    if trains(layout.graph):
        for (at, number), start in first.items():
            keeping = [
                index
                for index, node in enumerate(layout.graph.blocks[at].nodes)
                if index >= start and number in node.keeps and any(one.tensor == number for one in node.inputs)
            ]
            own = number < len(layout.graph.blocks[at].tensors)  # several blocks may gather what one of them made
            if keeping and own and (at, number) not in again:
                keepers[at, number] = keeping[0]
    return GatheredCopies(begins, ends, keepers)


def keeping_copies(graph: Graph, copies: GatheredCopies) -> Graph:
    """The same operators, of which those that keep a copy do not keep the share that it was gathered from."""
    blocks = list(graph.blocks)
    for (at, number), first in copies.keepers.items():
        nodes = tuple(
            msgspec.structs.replace(node, keeps=tuple(n for n in node.keeps if n != number))
            if index >= first and number in node.keeps
            else node
            for index, node in enumerate(blocks[at].nodes)
        )
        blocks[at] = msgspec.structs.replace(blocks[at], nodes=nodes)
    return msgspec.structs.replace(graph, blocks=tuple(blocks)) if copies.keepers else graph


def _copies(change: PlacementChange) -> bool:
    """Whether a change makes a larger copy of an operand for some operators."""
    return (
        not change.after and not change.gradient and change.phase == "forward" and isinstance(change.target, Replicated)
    )
