"""Where the ranks of one group lie on a cluster, and what each link between them offers.

`route` says how many ranks share a domain, how many domains there are, and the nominal rate of every link that the
group crosses, as the cluster's topology has it (`hardware/topologies/`); the algorithms (`cost/collectives/`) read
nothing else.
"""

from __future__ import annotations

from functools import lru_cache

from foretell.caches import forgettable
from foretell.errors import BadInput
from foretell.hardware.cluster import Cluster
from foretell.hardware.route import Crossing, Group, Hop, Route

__all__ = ["Crossing", "Group", "Hop", "Route", "route", "sharing"]


def sharing(group: Group, cluster: Cluster) -> int:
    """Groups of the same axis that use the network ports of one domain at once (phi of Kahira et al. 2021).

    With tp8 inside nodes of eight, the dp axis has eight groups with a rank in each node, and they all
    reduce at the same time.
    """
    inside, domains = _spread(group, cluster)
    return max(1, min(cluster.domain, cluster.ranks) // inside) if domains > 1 else 1


@forgettable
@lru_cache(maxsize=4096)
def route(group: Group, cluster: Cluster, sharing: int = 1, servers: int = 1) -> Route:
    """Where a group lies, and what it gets of every link that it crosses."""
    if sharing < 1:
        raise BadInput(f"{sharing} groups cannot share a link", fix="1 or more")
    if not 1 <= servers <= group.ranks:
        raise BadInput(f"{servers} servers on {group.ranks} ranks", fix=f"1 to {group.ranks}")
    inside, domains = _spread(group, cluster)
    held = _held(group, cluster)
    hops, crossings = cluster.fabric.hops(cluster, held), cluster.fabric.crossings(cluster, held, sharing)
    return Route(group.ranks, inside, domains, hops, crossings, cluster.groups[0].device.architecture, servers)


def _spread(group: Group, cluster: Cluster) -> tuple[int, int]:
    """Ranks of the group in one domain, and domains."""
    levels = cluster.levels
    first_network = next((at for at, level in enumerate(levels) if level.link.per_port), len(levels))
    inside = _held(group, cluster)[first_network]
    return inside, -(-group.ranks // inside)


def _held(group: Group, cluster: Cluster) -> tuple[int, ...]:
    """Ranks of the group in one unit of each level, from one device outwards."""
    held = [1]
    for count in cluster.spread(group.ranks, group.stride):
        held.append(min(group.ranks, held[-1] * count))
    return tuple(held)
