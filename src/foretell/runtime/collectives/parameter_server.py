"""Parameter server: the first k ranks hold a k-th of the tensor each; shares go there to be summed, and come back.

2 alpha + 2 (n - 1)/k m beta with servers among the workers (Langer et al. 2020, section 3.4): one server is the
bottleneck, with a share on every rank it moves what a ring does, in two steps.
"""

from __future__ import annotations

from collections.abc import Iterator

from foretell.errors import BadInput
from foretell.runtime.collectives._schedule import Round, Team, part

KINDS = ("all-reduce",)


def rounds(kind: str, team: Team) -> Iterator[Round]:
    return numbered(kind, team, 1)


def numbered(kind: str, team: Team, servers: int) -> Iterator[Round]:
    """With so many servers; 0 for a share on every rank."""
    count = servers or len(team)
    if count > len(team):
        raise BadInput(f"{count} servers on {len(team)} ranks", where="--collectives", fix=f"1 to {len(team)}")
    shares = [part(team.span, at, count) for at in range(count)]
    others = [(team.at + step) % len(team) for step in range(1, len(team))]
    # Each begins with another server, or they would all queue at the first.
    servers_in_turn = sorted((at for at in others if at < count), key=lambda at: (at - team.at) % count)
    out = tuple(team.send(at, shares[at]) for at in servers_in_turn)
    mine = tuple(team.send(at, shares[team.at]) for at in others) if team.at < count else ()
    yield Round(out, mine, adds=True)
    yield Round(mine, out)
