"""Recursive halving and doubling: ranks exchange with partners 1, 2, 4 ... apart, half as much each time.

Rabenseifner 2004: 2 log2(P) L + 2 (P - 1)/P m G for an all-reduce. The nearest partners exchange most, so a
domain sends (N - 1)/N of the tensor a pass, as with hierarchical rings.
"""

from __future__ import annotations

from foretell.cost.collectives._traffic import REDUCING, Steps, Traffic, border_loads, hop_loads, passes
from foretell.cost.fabric import Route
from foretell.units import ceil_log2

FAMILY = "ring"
KINDS = REDUCING


def traffic(kind: str, route: Route) -> Traffic | None:
    g, domains, rounds = route.inside, route.domains, passes(kind)
    steps = Steps(rounds * ceil_log2(g), rounds * ceil_log2(domains), rounds if domains > 1 else 0)
    return Traffic(
        hop_loads(route, rounds * (g - 1) / g),
        border_loads(route, rounds * (domains - 1) / domains),
        steps,
        pipelined=False,
    )
