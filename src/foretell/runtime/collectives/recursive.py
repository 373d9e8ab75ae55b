"""Recursive halving and doubling: partners exchange half, a quarter, an eighth ... and the way back.

2 log2(n) alpha + 2 (n - 1)/n m beta (Rabenseifner 2004). In an all-reduce the nearest partners exchange most. A
reduce-scatter or all-gather begins (ends) with the farthest, so that blocks come to lie by rank; among a number of
ranks that is no power of two these two go round a ring.
"""

from __future__ import annotations

from collections.abc import Iterator

from foretell.runtime.collectives import ring
from foretell.runtime.collectives._folding import folded, power_of_two
from foretell.runtime.collectives._schedule import ElementSpan, Round, Team, joined

KINDS = ("all-reduce", "all-gather", "reduce-scatter")


def rounds(kind: str, team: Team) -> Iterator[Round]:
    if kind == "all-reduce":
        yield from folded(team, _there_and_back)
    elif power_of_two(len(team)) != len(team):
        yield from ring.rounds(kind, team)
    elif kind == "reduce-scatter":
        yield from _halving(team, _distances(team)[::-1])
    else:
        yield from _doubling(team, _distances(team)[::-1])


def _there_and_back(team: Team) -> Iterator[Round]:
    yield from _halving(team, _distances(team))
    yield from _doubling(team, _distances(team))


def _distances(team: Team) -> list[int]:
    return [1 << bit for bit in range((len(team) - 1).bit_length())]


def _halving(team: Team, distances: list[int]) -> Iterator[Round]:
    for apart, kept, given in _halves(team, distances):
        yield Round((team.send(team.at ^ apart, given),), (team.send(team.at ^ apart, kept),), adds=True)


def _doubling(team: Team, distances: list[int]) -> Iterator[Round]:
    for apart, kept, given in reversed(list(_halves(team, distances))):
        yield Round((team.send(team.at ^ apart, kept),), (team.send(team.at ^ apart, given),))


def _halves(team: Team, distances: list[int]) -> Iterator[tuple[int, ElementSpan, ElementSpan]]:
    """Of what is left at each distance: the half this rank keeps (the upper one where it is upper), and the other."""
    low, high = 0, len(team)
    for apart in distances:
        middle = (low + high) // 2
        lower = joined(team.block(low), team.block(middle - 1))
        upper = joined(team.block(middle), team.block(high - 1))
        if team.at & apart:
            low = middle
            yield apart, upper, lower
        else:
            high = middle
            yield apart, lower, upper
