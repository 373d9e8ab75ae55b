"""Binomial tree: sums go up to the first rank and come down again, whole tensors.

2 log2(n)(alpha + m beta) (Ben-Nun and Hoefler 2019); a broadcast is the half that comes down.
"""

from __future__ import annotations

from collections.abc import Iterator

from foretell.runtime.collectives._schedule import Round, Team

KINDS = ("all-reduce", "broadcast")


def rounds(kind: str, team: Team) -> Iterator[Round]:
    if kind == "all-reduce":
        yield from _up(team)
    yield from _down(team)


def _up(team: Team) -> Iterator[Round]:
    """Ranks 1, 2, 4 ... apart: the upper one of two hands over and is done."""
    apart = 1
    while apart < len(team):
        if team.at % (2 * apart):
            yield Round(sends=(team.send(team.at - apart, team.span),))
            return
        if team.at + apart < len(team):
            yield Round(receives=(team.send(team.at + apart, team.span),), adds=True)
        apart *= 2


def _down(team: Team) -> Iterator[Round]:
    apart = 1 << (len(team) - 1).bit_length()
    while apart := apart // 2:
        if team.at % apart:
            continue
        if team.at % (2 * apart):
            yield Round(receives=(team.send(team.at - apart, team.span),))
        elif team.at + apart < len(team):
            yield Round(sends=(team.send(team.at + apart, team.span),))
