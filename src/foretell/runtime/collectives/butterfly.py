"""Butterfly, recursive doubling: ranks exchange everything with partners 1, 2, 4 ... apart.

log2(n)(alpha + m beta) (Ben-Nun and Hoefler 2019). Ranks beyond a power of two hand over first and get the sum last.
"""

from __future__ import annotations

from collections.abc import Iterator

from foretell.runtime.collectives._folding import folded
from foretell.runtime.collectives._schedule import Round, Team

KINDS = ("all-reduce",)


def rounds(kind: str, team: Team) -> Iterator[Round]:
    return folded(team, _exchanges)


def _exchanges(team: Team) -> Iterator[Round]:
    apart = 1
    while apart < len(team):
        partner = team.send(team.at ^ apart, team.span)
        yield Round((partner,), (partner,), adds=True)
        apart *= 2
