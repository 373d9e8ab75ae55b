"""Ring: every rank sends to the next; each link carries every byte about once a pass.

All-gather and reduce-scatter go round once, all-reduce twice (Patarasuk and Yuan 2009; Kahira et al. 2021:
2(p - 1)(alpha + m/p beta)). A broadcast is the chain that is left when nothing has to come back. The ring
runs over all rails of a node, so its network rate is that of all ports.
"""

from __future__ import annotations

from foretell.cost.collectives._traffic import REDUCING, AlgorithmTraffic, Steps, border_loads, hop_loads, passes
from foretell.cost.fabric import Route

FAMILY = "ring"
KINDS = (*REDUCING, "broadcast")


def traffic(kind: str, route: Route) -> AlgorithmTraffic | None:
    n, rounds = route.ranks, passes(kind)
    volume = 1.0 if kind == "broadcast" else rounds * (n - 1) / n
    network = rounds * (route.domains - 1)
    steps = Steps(rounds * (n - 1) - network, network, rounds if network else 0)
    return AlgorithmTraffic(hop_loads(route, volume), border_loads(route, volume), steps)
