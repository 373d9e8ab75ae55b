"""Which loops of an operator walk over which dims of its operands.

A loop nest names its loops by role (`row`, `in`, `out`), a tensor its dims by meaning (`sample`,
`sequence`, `hidden`). Where a share of a dim arrives, the loops over it are divided; where loops are
divided, the dims over them are needed in shares. Both directions read this one table.
"""

from __future__ import annotations

import functools
import math
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from foretell.caches import forgettable
from foretell.model.dims import Dim, Dims
from foretell.model.graph import Node
from foretell.model.operators.convolution import SPACE
from foretell.model.operators.layout import View


class LoopDim(NamedTuple):
    """One dim of one loop."""

    loop: str
    position: int


Walks: TypeAlias = tuple[tuple[LoopDim, ...], ...]
"""For each dim of a tensor the places that walk over it; several where it is their product."""

UNEVEN = ("vocab", "class", *SPACE)
"""Dims whose shares need not be equal: vocabularies are padded, images cut where it falls."""


def even(dim: Dim, ways: int) -> bool:
    """Whether a dim can be shared out among this many ranks."""
    return dim.size % ways == 0 or (dim.name in UNEVEN and dim.size >= ways)


@forgettable
@functools.lru_cache(maxsize=65536)
def align(node: Node, operand: str, dims: Dims) -> Walks:
    """The places that walk over each dim of an operand (`y` is any output)."""
    spans = node.operator.stored.get(operand) or node.operator.spans.get(operand) or node.operator.spans["x"]
    loops = {loop.name: loop.dims for loop in node.loops}
    names = [name for name in spans if name in loops]
    places = [(LoopDim(name, at), dim) for name in names for at, dim in enumerate(loops[name])]
    if tuple(dim for _, dim in places) == dims:
        return tuple((place,) for place, _ in places)
    found: list[tuple[LoopDim, ...]] = [()] * len(dims)
    for same in (_equal, _product, _named, _sized):
        for at, dim in enumerate(dims):
            if not found[at]:
                found[at] = same(dim, places)
                places = [(place, other) for place, other in places if place not in found[at]]
    return tuple(found)


_Places: TypeAlias = list[tuple[LoopDim, Dim]]


def _equal(dim: Dim, places: _Places) -> tuple[LoopDim, ...]:
    return next(((place,) for place, other in places if other == dim), ())


def _product(dim: Dim, places: _Places) -> tuple[LoopDim, ...]:
    """Neighbours that multiply to the dim and one of which has its name: channels in groups, heads that share."""
    for (first, one), (second, other) in pairwise(places):
        if one.size * other.size == dim.size and dim.name in (one.name, other.name):
            return first, second
    return ()


def _named(dim: Dim, places: _Places) -> tuple[LoopDim, ...]:
    return next(((place,) for place, other in places if other.name == dim.name), ())


def _sized(dim: Dim, places: _Places) -> tuple[LoopDim, ...]:
    return next(((place,) for place, other in places if other.size == dim.size and dim.size > 1), ())


def size_at(node: Node, place: LoopDim) -> Dim:
    """The dim at a place."""
    return next(loop.dims[place.position] for loop in node.loops if loop.name == place.loop)


def divisible(node: Node, places: tuple[LoopDim, ...], ways: int) -> LoopDim | None:
    """The first of these places that this many ranks can share."""
    return next((place for place in places if even(size_at(node, place), ways)), None)


def seen_through(node: Node, source: Dims, target: Dims, dim: int, ways: int) -> tuple[int, ...]:
    """Dims of a view in which a share of one dim of its source may show, the likeliest first.

    Dims that both have stay; the others are cut or joined in the order they come. A slice may leave
    a dim out altogether: then there is none.
    """
    assert isinstance(node.operator, View)
    pairs = _kept(source, target)
    if dim in pairs:
        return (pairs[dim],)
    left = [at for at in range(len(source)) if at not in pairs]
    right = [at for at in range(len(target)) if at not in pairs.values()]
    for group, others in _groups(left, right, source, target):
        if dim in group:
            return tuple(at for at in others if even(target[at], ways))
    return ()


def _kept(source: Dims, target: Dims) -> dict[int, int]:
    """Dims that a view has unchanged: of equal name and size, then of equal name."""
    pairs: dict[int, int] = {}
    for same in (lambda a, b: a == b, lambda a, b: a.name == b.name):  # type: ignore[misc]
        for at, dim in enumerate(source):
            if at not in pairs:
                free = (to for to, other in enumerate(target) if to not in pairs.values() and same(dim, other))
                to = next(free, None)
                if to is not None:
                    pairs[at] = to
    return pairs


def _groups(left: list[int], right: list[int], source: Dims, target: Dims) -> list[tuple[list[int], list[int]]]:
    """The rest in groups whose sizes multiply to the same; all in one group where they do not (a slice)."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(left) and j < len(right):
        one, other = [left[i]], [right[j]]
        i, j = i + 1, j + 1
        while (a := math.prod(source[k].size for k in one)) != (b := math.prod(target[k].size for k in other)):
            if a < b and i < len(left):
                one.append(left[i])
                i += 1
            elif a > b and j < len(right):
                other.append(right[j])
                j += 1
            else:
                return [(left, right)]
        groups.append((one, other))
    return groups
