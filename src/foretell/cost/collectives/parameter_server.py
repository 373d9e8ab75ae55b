"""Parameter server: gradients go to the ranks that hold the weights, new weights come back.

k of the n ranks hold a k-th of the weights each. A server's link carries (n - 1)/k of the tensor one way: with
one server (n - 1) times the tensor, with a share on every rank (n - 1)/n, as in a ring (Langer et al. 2020,
section 3.4). A server apart from the workers is one more rank of the group. Servers are the first k ranks: those of
one domain share its way out, which carries what all of them get.
"""

from __future__ import annotations

from foretell.cost.collectives._traffic import SERVER_KINDS, AlgorithmTraffic, Load, Steps, passes
from foretell.cost.fabric import Crossing, Route

FAMILY = "point"
KINDS = (*SERVER_KINDS, "all-reduce")


def traffic(kind: str, route: Route) -> AlgorithmTraffic | None:
    rounds, n = passes(kind), route.ranks
    inside = tuple(
        Load(rounds * (hop.members - hop.below) / route.servers, hop.link, hop.rate, "point", hop.members)
        for hop in route.hops
    )
    network = tuple(
        Load(rounds * count * (n - crossing.members) / route.servers, crossing.link, rate, "point", n)
        for crossing in route.crossings
        for count, rate in _ways(crossing, route.servers)
    )
    # All workers send at once: a server's peers wait for its link, not for each other.
    steps = Steps(0, rounds, rounds) if network else Steps(rounds, 0, 0)
    return AlgorithmTraffic(inside, network, steps)


def _ways(crossing: Crossing, servers: int) -> tuple[tuple[int, float], ...]:
    """Servers behind a way and its rate: one behind its own port, and all of a unit behind what leaves the unit."""
    return (1, crossing.through_rank), (min(servers, crossing.members), crossing.through_all)
