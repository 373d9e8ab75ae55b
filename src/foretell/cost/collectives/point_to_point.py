"""One message from a rank to another: a pipeline's activations, a halo, one round of a ring.

The slowest pair of the group sets the time: a message that leaves the domain goes over the ports beside
one rank. A round in which every rank sends to the next costs as much as one message.
"""

from __future__ import annotations

from foretell.cost.collectives._traffic import POINT_KINDS, AlgorithmTraffic, Load, Steps, hop_loads
from foretell.cost.fabric import Route

FAMILY = "point"
KINDS = POINT_KINDS


def traffic(kind: str, route: Route) -> AlgorithmTraffic | None:
    network = tuple(
        Load(1.0, crossing.link, crossing.through_rank, "point", route.ranks) for crossing in route.crossings
    )
    steps = Steps(0, 1, 1) if network else Steps(1, 0, 0)
    return AlgorithmTraffic(hop_loads(route, 1.0, "point"), network, steps)
