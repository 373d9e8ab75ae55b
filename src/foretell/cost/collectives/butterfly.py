"""Butterfly (recursive doubling): ranks exchange everything with partners 1, 2, 4 ... apart.

log2(P)(L + m G) (Ben-Nun and Hoefler 2019): fewest steps, most bytes. For small tensors.
"""

from __future__ import annotations

from foretell.cost.collectives._traffic import AlgorithmTraffic, Load, Steps, hop_loads
from foretell.cost.fabric import Route
from foretell.units import ceil_log2

FAMILY = "ring"
KINDS = ("all-reduce",)


def traffic(kind: str, route: Route) -> AlgorithmTraffic | None:
    rounds = ceil_log2(route.domains)
    network = tuple(
        Load(
            float(crossing.members * ceil_log2(crossing.units)),
            crossing.link,
            crossing.through_all,
            "ring",
            route.ranks,
        )
        for crossing in route.crossings
    )
    steps = Steps(ceil_log2(route.inside), rounds, 1 if rounds else 0)
    return AlgorithmTraffic(hop_loads(route, float(ceil_log2(route.inside))), network, steps, pipelined=False)
