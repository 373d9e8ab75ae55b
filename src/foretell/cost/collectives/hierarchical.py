"""Hierarchical: reduce-scatter inside each domain, all-reduce between domains, all-gather inside.

Every rank of a domain talks to its likes elsewhere with a g-th of the tensor, in rings. Steps grow with
g + N instead of g N. On one domain it is the flat ring.
"""

from __future__ import annotations

from foretell.cost.collectives._traffic import REDUCING, AlgorithmTraffic, Steps, border_loads, hop_loads, passes
from foretell.cost.fabric import Route

FAMILY = "ring"
KINDS = REDUCING


def traffic(kind: str, route: Route) -> AlgorithmTraffic | None:
    g, domains, rounds = route.inside, route.domains, passes(kind)
    steps = Steps(rounds * (g - 1), rounds * (domains - 1), rounds if domains > 1 else 0)
    return AlgorithmTraffic(
        hop_loads(route, rounds * (g - 1) / g),
        border_loads(route, rounds * (domains - 1) / domains),
        steps,
        pipelined=False,
    )
