"""NVLS: the NVLink switch reduces and multicasts; between domains, a tree.

A rank sends its tensor to the switch once and receives one g-th of the sums to pass on: S(1 + 1/g) on its
link, which explains 6 and 8 B200 with one efficiency. Needs a switch that can (Hopper and later). Where a domain is
several hosts (an NVL72 rack) there is no tree between domains: NCCL leaves it out (src/graph/tuning.cc: `NVLS_TREE` is
off for one node and for multi-node NVLink), and an all-reduce of two racks of GB200 is as fast as a ring.
"""

from __future__ import annotations

from foretell.cost.collectives._traffic import AlgorithmTraffic, Steps, border_loads, hop_loads
from foretell.cost.collectives.tree import network_volume
from foretell.cost.fabric import Route
from foretell.units import ceil_log2

FAMILY = "nvls"
KINDS = ("all-reduce",)
HOST = "node"
"""The level of the ranks of one host."""


def traffic(kind: str, route: Route) -> AlgorithmTraffic | None:
    if not route.multicast or (route.domains > 1 and route.hops[0].level != HOST):
        return None
    volume = 1 + 1 / route.inside
    steps = Steps(0, 2 * ceil_log2(route.domains), 2 if route.domains > 1 else 0)
    return AlgorithmTraffic(hop_loads(route, volume, "nvls"), border_loads(route, network_volume(route.domains)), steps)
