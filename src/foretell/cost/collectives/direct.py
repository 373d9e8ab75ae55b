"""Direct: every rank sends to every other one its part.

An all-to-all has no other way that sends less. An all-gather or reduce-scatter done so takes one step, but
the network carries every part once for each rank of the other side instead of once for each domain.
"""

from __future__ import annotations

from foretell.cost.collectives._traffic import AlgorithmTraffic, Load, Steps
from foretell.cost.fabric import Route

FAMILY = "point"
KINDS = ("all-to-all", "all-gather", "reduce-scatter")


def traffic(kind: str, route: Route) -> AlgorithmTraffic | None:
    n, g = route.ranks, route.inside
    inside = tuple(
        Load((hop.members - hop.below) / n, hop.link, hop.rate, "all_to_all", hop.members) for hop in route.hops
    )
    network = tuple(
        Load(crossing.members * (n - crossing.members) / n, crossing.link, crossing.through_all, "all_to_all", n)
        for crossing in route.crossings
    )
    return AlgorithmTraffic(inside, network, Steps(g - 1, n - g, 1 if route.domains > 1 else 0))
