"""Which operators a part of the model means: `conv1..pool2`, `fc*`, `layers.3`, and several with commas."""

from __future__ import annotations

import fnmatch
import functools
from typing import TypeAlias

from foretell.caches import forgettable
from foretell.errors import BadInput, first_of, near
from foretell.model.fold import raised
from foretell.model.graph import Graph

Order: TypeAlias = list[tuple[int, int, str]]
"""(block, node, path) of every operator in running order."""


@forgettable
@functools.lru_cache(maxsize=256)
def members(graph: Graph, only: str) -> frozenset[tuple[int, int]] | None:
    """The (block, node) of a part; everything is None. A repeated block belongs to it if any repetition does."""
    if not only:
        return None
    return frozenset(place for one in only.split(",") for place in _places(graph, running_order(graph), one, only))


@forgettable
@functools.lru_cache(maxsize=64)
def running_order(graph: Graph) -> Order:
    """Every operator, those of repeated blocks once for each repetition."""
    return [
        (at, index, raised(node.path, block.place, repetition * block.stride))
        for at, block in enumerate(graph.blocks)
        for repetition in range(block.times)
        for index, node in enumerate(block.nodes)
    ]


def _places(graph: Graph, order: Order, one: str, only: str) -> list[tuple[int, int]]:
    """The operators of one item: a path, a pattern, or all from one to another."""
    first, dots, last = one.partition("..")
    starts = _found(graph, order, first, only)
    if not dots:
        return [order[n][:2] for n in starts]
    ends = _found(graph, order, last, only)
    if ends[-1] < starts[0]:
        fixed = only.replace(one, f"{last}..{first}")
        raise BadInput(f"{last!r} comes before {first!r}", where=f"[{only}]", fix=f"[{fixed}]")
    return [(at, index) for at, index, _ in order[starts[0] : ends[-1] + 1]]


def _found(graph: Graph, order: Order, name: str, only: str) -> list[int]:
    found = [n for n, (_, _, path) in enumerate(order) if _is_part(path, name)]
    if not found:
        paths = {path for _, _, path in order if path}
        fix = ", ".join(near(name, paths)) or first_of(sorted(paths), 8)
        raise BadInput(f"no part of {graph.name} is called {name!r}", where=f"[{only}]", fix=fix)
    return found


def _is_part(path: str, name: str) -> bool:
    """Whether a path is this module, lies in it, or matches a pattern with stars."""
    return path == name or path.startswith(f"{name}.") or fnmatch.fnmatchcase(path, name)
