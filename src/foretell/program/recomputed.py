"""Which operators of a model run again under a rule of recomputation, and when."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from foretell.caches import forgettable
from foretell.model.graph import Block, Graph
from foretell.model.layers import pieces
from foretell.model.operators.matmul import Matmul
from foretell.plan.recomputation import Recomputation, Saving
from foretell.program.lifetimes import storage_number


class Recomputed(NamedTuple):
    """Operators (block, node) that run again, and those whose inside does."""

    again: frozenset[tuple[int, int]]
    inside: frozenset[tuple[int, int]]
    twice: frozenset[tuple[int, int]]  # those whose kernel multiplies again by itself
    at_once: bool

    def reruns(self, at: int, block: Block, start: int, stop: int) -> dict[int, list[int]]:
        """Of some operators of a block: those that run again, by the one before whose backward pass they do.

        Those in a row run together, before the backward pass of the last of them, or of a later operator that needs
        what they make: for its own backward pass, or since it runs again itself.
        """
        needed: dict[int, int] = {}  # storage, to the last operator before whose backward pass it has to be there
        for index in range(start, stop):
            if (at, index) not in self.again:
                node = block.nodes[index]
                read = [operand.tensor for operand in node.inputs] if (at, index) in self.inside else []
                needed |= {storage_number(block, number): index for number in (*node.keeps, *read)}
        found: dict[int, list[int]] = {}
        for row in reversed(self._rows(at, start, stop)):
            made = [number for index in row for number in block.nodes[index].outputs]
            when = max([row[-1], *(needed.get(storage_number(block, number), 0) for number in made)])
            when = stop - 1 if self.at_once else when
            for operand in (operand for index in row for operand in block.nodes[index].inputs):
                storage = storage_number(block, operand.tensor)
                needed[storage] = max(needed.get(storage, 0), when)
            found[when] = row + found.get(when, [])
        return found

    def _rows(self, at: int, start: int, stop: int) -> list[list[int]]:
        """Operators in a row that run again."""
        rows = groupby(range(start, stop), key=lambda index: (at, index) in self.again)
        return [list(row) for again, row in rows if again]


@forgettable
@functools.lru_cache(maxsize=256)
def recomputed(graph: Graph, rule: Recomputation) -> Recomputed:
    """What a rule says of every operator of a model; blocks without a backward pass have nothing to run again for."""
    layers = {piece.block for piece in pieces(graph) if piece.layer}
    says: dict[Saving, set[tuple[int, int]]] = {saving: set() for saving in Saving}
    for at, block in enumerate(graph.blocks):
        if any(node.gradients for node in block.nodes):
            for index, saving in enumerate(rule.savings(block.nodes, at in layers)):
                says[saving].add((at, index))
    again, inside = frozenset(says[Saving.AGAIN]), frozenset(says[Saving.INSIDE])
    return Recomputed(again, inside, frozenset(_twice(graph)) - inside, rule.at_once)


def _twice(graph: Graph) -> Iterator[tuple[int, int]]:
    for at, block in enumerate(graph.blocks):
        for index, node in enumerate(block.nodes):
            if isinstance(node.operator, Matmul) and node.operator.twice and node.gradients:
                yield at, index
