"""What algorithms for a power of two do with other numbers of ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from foretell.runtime.collectives._schedule import Round, Team


def power_of_two(ranks: int) -> int:
    """The largest that is not above a number."""
    return 1 << (ranks.bit_length() - 1)


def folded(team: Team, rounds: Callable[[Team], Iterator[Round]]) -> Iterator[Round]:
    """An all-reduce among a power of two; the ranks beyond it hand over before, and get the sum after."""
    inner = power_of_two(len(team))
    if team.at >= inner:
        partner = team.send(team.at - inner, team.span)
        yield Round(sends=(partner,))
        yield Round(receives=(partner,))
        return
    beyond = team.send(team.at + inner, team.span) if team.at + inner < len(team) else None
    if beyond:
        yield Round(receives=(beyond,), adds=True)
    yield from rounds(Team(team.members[:inner], team.at, team.span))
    if beyond:
        yield Round(sends=(beyond,))
