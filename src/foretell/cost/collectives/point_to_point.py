"""One message from a rank to another: a pipeline's activations, a halo, one round of a ring.

The slowest pair of the group sets the time: a message that leaves the domain goes over the ports beside
one rank. A round in which every rank sends to the next costs as much as one message.
"""

from __future__ import annotations

from foretell.cost.collectives._traffic import POINT_KINDS, Load, Steps, Traffic, hop_loads
from foretell.cost.fabric import Route

NAME = "point-to-point"
FAMILY = "point"
KINDS = POINT_KINDS


def traffic(kind: str, route: Route) -> Traffic | None:
    network = tuple(
        Load(1.0, crossing.link, crossing.through_rank, "point", route.ranks) for crossing in route.crossings
    )
    return Traffic(hop_loads(route, 1.0, "point"), network, Steps(0, 0, 1 if network else 0))
