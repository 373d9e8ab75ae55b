"""Recursive halving and doubling: ranks exchange with partners 1, 2, 4 ... apart, half as much each time.

Rabenseifner 2004: 2 log2(P) L + 2 (P - 1)/P m G for an all-reduce. Its nearest partners exchange most, so a
domain sends (N - 1)/N of the tensor a pass, as with hierarchical rings. A reduce-scatter alone has to leave blocks by
rank, so it begins with the farthest partners (an all-gather ends with them): then every rank of a domain sends
(N - 1)/N of the tensor out of it, and only an N-th is left for the links inside.
"""

from __future__ import annotations

from foretell.cost.collectives._traffic import REDUCING, AlgorithmTraffic, Load, Steps, border_loads, hop_loads, passes
from foretell.cost.fabric import Route
from foretell.units import ceil_log2

FAMILY = "ring"
KINDS = REDUCING


def traffic(kind: str, route: Route) -> AlgorithmTraffic | None:
    g, domains, rounds = route.inside, route.domains, passes(kind)
    steps = Steps(rounds * ceil_log2(g), rounds * ceil_log2(domains), rounds if domains > 1 else 0)
    if kind == "all-reduce":
        inside, network = hop_loads(route, rounds * (g - 1) / g), border_loads(route, rounds * (domains - 1) / domains)
    else:
        inside, network = hop_loads(route, (g - 1) / g / domains), _farthest_first(route)
    return AlgorithmTraffic(inside, network, steps, pipelined=False)


def _farthest_first(route: Route) -> tuple[Load, ...]:
    """Every rank of a unit sends to other units, all at once: 1/2 of the tensor, 1/4 ... to the nearest of them.

    The outermost network carries the first and largest halves; what is left is for the ones further in.
    """
    found: list[Load] = []
    outside = 1  # units of the levels further out, among which the tensor is divided already
    for crossing in reversed(route.crossings):
        volume = crossing.members * (crossing.units - 1) / crossing.units / outside
        found.append(Load(volume, crossing.link, crossing.through_all, "ring", route.ranks))
        outside *= crossing.units
    return tuple(reversed(found))
