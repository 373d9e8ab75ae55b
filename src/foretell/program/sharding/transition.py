"""What has to travel when a tensor changes its placement along an axis.

The only place that knows collectives. Each follows from where a tensor is and where it is needed:

    partial    -> replicated      all-reduce
    partial    -> sharded         reduce-scatter
    sharded    -> replicated      all-gather
    sharded    -> sharded (other dim), routed     all-to-all
    sharded    -> sharded with a halo             exchange with the neighbours
    sharded    -> rotating        shift round the ring, and back home with what was added
    partial    -> served          push;  served -> replicated: pull
    drifted    -> replicated      all-reduce (an average);  drifted -> mixed: exchange with neighbours
    replicated -> anything        nothing: every rank has it already
"""

from __future__ import annotations

from typing import NamedTuple

from foretell.plan.placement import (
    Drifted,
    Mixed,
    Partial,
    Placement,
    Replicated,
    Rotating,
    Routed,
    Served,
    Sharded,
)


class Travel(NamedTuple):
    """A kind of communication, and of how many messages it is made where it is not a collective."""

    kind: str
    messages: int = 1


def travel(source: Placement, target: Placement, ranks: int) -> Travel | None:
    """What travels along one axis; None if nothing does."""
    if ranks == 1 or source == target or isinstance(source, Replicated):
        return None
    match source, target:
        case Partial(), Replicated():
            return Travel("all-reduce")
        case Partial(), Sharded() | Routed():
            return Travel("reduce-scatter")
        case Partial(), Served(servers):
            return Travel("push", servers)
        case Served(servers), Replicated():
            return Travel("pull", servers)
        case Drifted(), Replicated():
            return Travel("all-reduce")
        case Drifted(), Mixed(neighbours):
            return Travel("exchange", min(neighbours, ranks - 1))
        case Sharded(), Rotating():
            return Travel("shift", ranks - 1)
        case Rotating(), Sharded():
            return Travel("shift", ranks)  # sums go round once, and one step further home
        case Sharded(dim), Sharded(other, (before, after)) if dim == other:
            neighbours = min((before > 0) + (after > 0), ranks - 1)  # of two ranks nobody has two
            return Travel("exchange", neighbours) if before or after else None
        case (Sharded() | Routed(), Sharded() | Routed()):
            return Travel("all-to-all")
        case (Sharded() | Routed() | Rotating(), Replicated()):
            return Travel("all-gather")
        case _:
            raise ValueError(f"nothing is known to bring a tensor from {source} to {target}")
