"""Hierarchical: reduce-scatter inside each island, all-reduce between islands, all-gather inside; rings all three.

Every rank of an island talks to its likes elsewhere with its share of the tensor: steps grow with the size of an island
plus their number, not with the product.
"""

from __future__ import annotations

from collections.abc import Iterator

from foretell.errors import BadInput
from foretell.runtime.collectives import ring
from foretell.runtime.collectives._schedule import Round, Team

KINDS = ("all-reduce",)


def rounds(kind: str, team: Team) -> Iterator[Round]:
    return numbered(kind, team, 1)


def numbered(kind: str, team: Team, island: int) -> Iterator[Round]:
    """With so many ranks in an island, next to each other."""
    if island < 1 or len(team) % island:
        what = f"{len(team)} ranks are not whole islands of {island}"
        raise BadInput(what, where="--collectives", fix="hierarchical:2, or a number that divides the ranks")
    start = team.at - team.at % island
    inside = Team(team.members[start : start + island], team.at - start, team.span)
    outside = Team(team.members[inside.at :: island], team.at // island, inside.block(inside.at))
    yield from ring.rounds("reduce-scatter", inside)
    yield from ring.rounds("all-reduce", outside)
    yield from ring.rounds("all-gather", inside)
