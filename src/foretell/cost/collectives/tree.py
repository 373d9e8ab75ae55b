"""Double binary tree: up and down, every rank inner node of one tree and leaf of the other.

Over the network each domain sends 2S, and only S between two domains, where each is the other's parent
(Sanders, Speck and Traeff 2009; NCCL since 2.4). Inside a domain the tree is a chain.
"""

from __future__ import annotations

from foretell.cost.collectives._traffic import AlgorithmTraffic, Steps, border_loads, hop_loads
from foretell.cost.fabric import Route
from foretell.units import ceil_log2

FAMILY = "tree"
KINDS = ("all-reduce",)


def network_volume(domains: int) -> float:
    """Bytes that a domain sends for each byte of the tensor."""
    return 1.0 if domains == 2 else 2.0


def traffic(kind: str, route: Route) -> AlgorithmTraffic | None:
    steps = Steps(2 * (route.inside - 1), 2 * ceil_log2(route.domains), 2 if route.domains > 1 else 0)
    return AlgorithmTraffic(hop_loads(route, 2.0), border_loads(route, network_volume(route.domains)), steps)
