"""Ring: every rank sends to the next, a block at a time; an all-reduce goes round twice.

2(n - 1)(alpha + m/n beta) (Patarasuk and Yuan 2009). A broadcast is a chain of pieces that follow each other.
"""

from __future__ import annotations

from collections.abc import Iterator

from foretell.runtime.collectives._schedule import ElementSpan, Message, Round, Team, part

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "broadcast")

PIECES = 32
"""Of a broadcast. The last rank waits for n - 2 of them longer than for the bytes alone."""

LEAST = 4096
"""Elements of a piece: below that they are messages for nothing."""


def rounds(kind: str, team: Team) -> Iterator[Round]:
    if kind == "broadcast":
        yield from _chain(team)
        return
    if kind != "all-gather":
        yield from _round(team, first=team.at - 1, adds=True)
    if kind != "reduce-scatter":
        yield from _round(team, first=team.at, adds=False)


def _round(team: Team, first: int, adds: bool) -> Iterator[Round]:
    """Once round: each rank passes on what came last, beginning with a block."""
    for step in range(len(team) - 1):
        out = team.send(team.at + 1, team.block(first - step))
        back = team.send(team.at - 1, team.block(first - step - 1))
        yield Round((out,), (back,), adds)


def pieces_of(size: int) -> int:
    """Into how many pieces a broadcast of so many elements is cut."""
    return max(1, min(PIECES, size // LEAST))


def _chain(team: Team) -> Iterator[Round]:
    count = pieces_of(team.span.size)
    pieces = [part(team.span, at, count) for at in range(count)]
    for coming, going in zip([*pieces, None], [None, *pieces], strict=True):
        yield Round(
            _message(going, team, team.at + 1, last=len(team)),
            _message(coming, team, team.at - 1, last=len(team)),
        )


def _message(piece: ElementSpan | None, team: Team, at: int, last: int) -> tuple[Message, ...]:
    """To or from a neighbour: the first of a chain has none before it, the last none behind it."""
    return (team.send(at, piece),) if piece is not None and 0 <= at < last else ()
