"""Which experts a token can reach, and on how many ranks and nodes those are that it goes to.

A router that scores all experts spreads a token's `chosen` rows over nearly as many ranks. One that is limited to some
groups of experts (DeepSeek-V3: 4 of 8) reaches fewer nodes where a group's experts lie on one. Ways of dispatch that
send a token once to each node pay for nodes, not for rows.
"""

from __future__ import annotations

import functools
from itertools import pairwise
from math import comb
from typing import NamedTuple

import msgspec

from foretell.caches import forgettable
from foretell.model.graph import Graph
from foretell.model.operators.experts import GroupedMatmul, TopK
from foretell.model.resize import skeleton


class Reach(msgspec.Struct, frozen=True):
    """A router: of `experts` in equal `groups`, a token goes to `chosen` in `top_groups` of the groups."""

    experts: int
    chosen: int
    groups: int = 1
    top_groups: int = 1


class Owners(NamedTuple):
    """Where the experts of a token are, on average if all are chosen equally often."""

    rows: int  # one for each of its experts
    ranks: float  # that have at least one of them
    nodes: float  # likewise


def reach(graph: Graph) -> Reach | None:
    """The router of a model; None: it has no experts, or nothing that chooses among them."""
    return _reach(skeleton(graph))


@forgettable
@functools.lru_cache(maxsize=64)
def _reach(graph: Graph) -> Reach | None:
    for block in graph.blocks:
        counts = [node.sizes()["expert"] for node in block.nodes if isinstance(node.operator, GroupedMatmul)]
        picks = [node.sizes() for node in block.nodes if isinstance(node.operator, TopK)]
        chosen = next((n["chosen"] for n in picks if counts and n["class"] == counts[0]), 0)
        if not chosen:
            continue
        for best, limited in pairwise(picks):  # the best of each group are found, then the groups
            if best["class"] * limited["class"] == counts[0]:
                return Reach(counts[0], chosen, limited["class"], limited["chosen"])
        return Reach(counts[0], chosen)
    return None


@forgettable
@functools.lru_cache(maxsize=64)
def row_elements(graph: Graph) -> int:
    """Of a row that goes to an expert: what the first product of experts reads; 0 without experts."""
    found = (node.sizes()["in"] for _, node in graph.nodes() if isinstance(node.operator, GroupedMatmul))
    return next(found, 0)


@functools.lru_cache(maxsize=1024)
def owners(found: Reach, ranks: int, inside: int) -> Owners:
    """Of a token: ranks and nodes that have one of its experts, where `inside` ranks lie on a node.

    Experts lie in order on the ranks, and these on the nodes.
    """
    return Owners(found.chosen, _expected(found, ranks), _expected(found, -(-ranks // inside)))


def _expected(found: Reach, holders: int) -> float:
    """Of so many holders of equal numbers of experts, how many have at least one that a token goes to."""
    size, each = found.experts // found.groups, found.experts / holders
    bounds = [round(each * holder) for holder in range(holders + 1)]
    shares: dict[tuple[int, ...], int] = {}
    for first, stop in pairwise(bounds):
        groups = range(first // size, -(-stop // size))
        held = tuple(sorted(min(stop, (g + 1) * size) - max(first, g * size) for g in groups))
        shares[held] = shares.get(held, 0) + 1
    return sum(times * (1 - _missed(found, held)) for held, times in shares.items())


def _missed(found: Reach, held: tuple[int, ...]) -> float:
    """The chance that none of a token's experts is among those held, so many of each of some groups."""
    reached = found.experts // found.groups * found.top_groups
    ways: dict[tuple[int, int], int] = {(0, 0): 1}  # groups of them that are chosen, and experts held there
    for count in held:
        for (groups, experts), times in list(ways.items()):
            more = groups + 1, experts + count
            ways[more] = ways.get(more, 0) + times
    others = found.groups - len(held)
    missed = sum(
        times * comb(others, found.top_groups - groups) * comb(reached - experts, found.chosen)
        for (groups, experts), times in ways.items()
        if found.top_groups >= groups and reached - experts >= 0
    )
    return missed / (comb(found.groups, found.top_groups) * comb(reached, found.chosen))
