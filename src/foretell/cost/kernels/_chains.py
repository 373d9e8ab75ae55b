"""Compiled execution: operators next to each other that one kernel can do.

A compiler fuses element-wise operators with those before and after them. What one writes and the next one reads then
stays in registers, so a chain moves only what enters and leaves it. Products and attention come from libraries and end
a chain, and so does a message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final, TypeGuard

import msgspec

from foretell.model.autocast import PRODUCTS
from foretell.model.operator import OperatorPart
from foretell.program.action import Allocate, Compute, Free
from foretell.units import Quantity, at_least

LIBRARY: Final = frozenset({*PRODUCTS, "embedding", "sort", "top_k"})
"""Operators that no chain takes in."""

COMPLEX: Final = frozenset({*LIBRARY, "rotary"})
"""The same where a trainer turns positions as complex numbers, for which no compiler writes kernels."""


def chains(
    actions: Iterable[object], execution: str, norms_take_in: bool = False, complex_rotary: bool = False
) -> Iterator[object]:
    """The actions of a body with each chain as one computation, where kernels are compiled; else as they are.

    Memory events inside a chain come before it. Where kernels start one by one, a trainer's batch norms may take in the
    sum and the activation after them.
    """
    alone = COMPLEX if complex_rotary else LIBRARY
    if execution == "eager":
        yield from _beside_norms(actions) if norms_take_in else actions
        return
    held: list[Compute] = []
    for action in actions:
        if isinstance(action, Allocate | Free):
            yield action
        elif isinstance(action, Compute) and action.operator not in alone and _goes_on(held, action):
            held.append(action)
        else:
            yield from _joined(held)
            held = []
            if isinstance(action, Compute) and action.operator not in alone:
                held.append(action)
            else:
                yield action
    yield from _joined(held)


def _beside_norms(actions: Iterable[object]) -> Iterator[object]:
    """Norms with the element-wise operators after them, forward, and before them, backward, in their own kernels."""
    norm: Compute | None = None
    before: list[Compute] = []  # gradients of element-wise operators that a norm may still take in
    for action in actions:
        if isinstance(action, Allocate | Free):
            yield action
        elif norm is not None and _taken_in(action, norm):
            norm = _with_other_input(norm, action)
        else:
            if norm is not None:
                yield norm
                norm = None
            if isinstance(action, Compute) and action.operator == "normalize":
                before.clear()
                norm = action
            elif isinstance(action, Compute) and action.operator == "elementwise" and action.part != "forward":
                before.append(action)
            else:
                yield from before
                before.clear()
                yield action
    yield from before
    if norm is not None:
        yield norm


def _taken_in(action: object, norm: Compute) -> TypeGuard[Compute]:
    if not isinstance(action, Compute) or action.operator != "elementwise":
        return False
    return action.part == norm.part == "forward" and action.again == norm.again


def _with_other_input(norm: Compute, action: Compute) -> Compute:
    """The norm that also reads what a sum adds: of its inputs one is what the norm has just made."""
    other = at_least(action.cost.read - action.cost.written, 0)
    return msgspec.structs.replace(norm, cost=norm.cost + OperatorPart(read=other))


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
        cost = cost + OperatorPart(read=-stays, written=-stays)
    kernels = at_least(cost.fused, 1)
    lead = next((one for one in held if one.cost.fused), held[-1])
    whole = OperatorPart(cost.matrix, cost.vector, cost.read, cost.written, kernels, kernels, cost.work, cost.depth)
    yield msgspec.structs.replace(lead, part=held[-1].part, cost=whole)


def _smaller(a: Quantity, b: Quantity) -> Quantity:
    return a + b - at_least(a, b)
