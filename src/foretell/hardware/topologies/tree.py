"""A tree of switches: all units of a level reach each other alike."""

from __future__ import annotations

from itertools import pairwise

from foretell.hardware.cluster import Cluster, Level
from foretell.hardware.route import Crossing, Hop
from foretell.hardware.topology import FabricTopology


class SwitchTree(FabricTopology, frozen=True):
    summary = "switches above switches: all units of a level reach each other alike, at less where over-subscribed"
    references = ("Leiserson 1985 (fat trees), IEEE Transactions on Computers C-34",)

    def spread(self, cluster: Cluster, size: int, stride: int) -> tuple[int, ...]:
        """A group that would fit a unit but is cut by its border counts as cut in half."""
        counts: list[int] = []
        held = 1
        for level in cluster.levels:
            unit = cluster.unit(level)
            cut = unit % (size * stride) != 0 and unit < cluster.ranks
            fitting = min(size, unit // stride, -(-size // 2) if cut else size)
            inside = max(held, fitting)
            counts.append(-(-inside // held))
            held = inside
        return tuple(counts)

    def hops(self, cluster: Cluster, held: tuple[int, ...]) -> tuple[Hop, ...]:
        """Device links that are crossed; neighbouring levels with the same link are one."""
        found: list[Hop] = []
        for level, (below, members) in zip(cluster.levels, pairwise(held), strict=True):
            if level.link.per_port:
                break
            if members == below:
                continue
            rate = level.link.bandwidth / level.oversubscription
            if found and found[-1].link.name == level.link.name:
                below, rate = found[-1].below, min(rate, found[-1].rate)
                found.pop()
            found.append(Hop(level.name, level.link, below, members, rate))
        return tuple(found)

    def crossings(self, cluster: Cluster, held: tuple[int, ...], sharing: int) -> tuple[Crossing, ...]:
        levels = list(zip(cluster.levels, pairwise(held), strict=True))
        inside = next((below for level, (below, _) in levels if level.link.per_port), held[-1])
        return tuple(
            self.crossing(cluster, level, below, members, inside, sharing)
            for level, (below, members) in levels
            if level.link.per_port and members > below
        )

    def crossing(self, cluster: Cluster, level: Level, below: int, members: int, inside: int, sharing: int) -> Crossing:
        """One network, between units with `below` ranks of a group that has `inside` of them in a domain."""
        hosts = max(1, cluster.domain // cluster.ranks_per_node)  # an NVLink rack has the ports of all its nodes
        # A rank reaches the ports beside it: a group with one rank in a node cannot fill all eight ports.
        per_rank = max(1.0, level.ports / cluster.ranks_per_node)
        ports = level.ports * hosts / sharing
        domain = level.link.bandwidth * min(ports, per_rank * inside)
        unit = domain * max(1, below // inside) / level.oversubscription
        rank = level.link.bandwidth * min(ports, per_rank)
        return Crossing(level.name, level.link, below, -(-members // below), min(domain, unit), unit, min(rank, unit))


TOPOLOGY = SwitchTree()
