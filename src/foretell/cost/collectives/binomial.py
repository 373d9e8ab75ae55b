"""Binomial tree: sums go up to one rank and come down again, whole tensors, one level after the other.

2 log2(P)(L + m G) (Ben-Nun and Hoefler 2019); a broadcast is the half that comes down. What a parameter server
with helpers does, and what libraries did before trees were pipelined.
"""

from __future__ import annotations

from foretell.cost.collectives._traffic import AlgorithmTraffic, Steps, border_loads, hop_loads, passes
from foretell.cost.fabric import Route
from foretell.units import ceil_log2

FAMILY = "ring"
KINDS = ("all-reduce", "broadcast")


def traffic(kind: str, route: Route) -> AlgorithmTraffic | None:
    rounds = passes(kind)
    inside, outside = rounds * ceil_log2(route.inside), rounds * ceil_log2(route.domains)
    steps = Steps(inside, outside, rounds if outside else 0)
    return AlgorithmTraffic(
        hop_loads(route, float(inside)), border_loads(route, float(outside)), steps, pipelined=False
    )
