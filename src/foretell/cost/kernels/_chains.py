"""Compiled execution: operators next to each other that one kernel can do.

A compiler fuses element-wise operators with those before and after them. What one writes and the next one reads then
stays in registers, so a chain moves only what enters and leaves it. Products and attention come from libraries and end
a chain, and so does a message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

import msgspec

from foretell.model.operator import Part
from foretell.program.action import Allocate, Compute, Free
from foretell.units import Quantity, at_least

LIBRARY: Final = frozenset(
    {"matmul", "grouped_matmul", "convolution", "attention", "recurrent", "embedding", "sort", "top_k"}
)
"""Operators that no chain takes in."""


def chains(actions: Iterable[object], execution: str) -> Iterator[object]:
    """The actions of a body with each chain as one computation, where kernels are compiled; else as they are.

    Memory events inside a chain come before it.
    """
    if execution == "eager":
        yield from actions
        return
    held: list[Compute] = []
    for action in actions:
        if isinstance(action, Allocate | Free):
            yield action
        elif isinstance(action, Compute) and action.operator not in LIBRARY and _goes_on(held, action):
            held.append(action)
        else:
            yield from _joined(held)
            held = []
            if isinstance(action, Compute) and action.operator not in LIBRARY:
                held.append(action)
            else:
                yield action
    yield from _joined(held)


def _goes_on(held: list[Compute], action: Compute) -> bool:
    """One kernel is of one pass; of two reductions in a row each is a kernel of its own."""
    if not held:
        return True
    reductions = sum(bool(one.cost.fused) for one in held) + bool(action.cost.fused)
    same = (held[0].part == "forward") == (action.part == "forward") and held[0].again == action.again
    return same and reductions <= 1


def _joined(held: list[Compute]) -> Iterator[Compute]:
    if len(held) <= 1:
        yield from held
        return
    cost = held[0].cost
    for before, after in pairwise(held):
        stays = _smaller(before.cost.written, after.cost.read)
        cost = cost + after.cost
        cost = cost + Part(read=-stays, written=-stays)
    kernels = at_least(cost.fused, 1)
    lead = next((one for one in held if one.cost.fused), held[-1])
    whole = Part(cost.matrix, cost.vector, cost.read, cost.written, kernels, kernels, cost.work, cost.depth)
    yield msgspec.structs.replace(lead, part=held[-1].part, cost=whole)


def _smaller(a: Quantity, b: Quantity) -> Quantity:
    return a + b - at_least(a, b)
