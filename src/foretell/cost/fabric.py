"""Where the ranks of one group lie on a cluster, and what each link between them offers.

A collective sees two worlds: the ranks that reach each other over device links (NVLink, PCIe: a *domain*,
one node or one NVLink rack), and the network between domains. `route` says how many ranks share a domain,
how many domains there are, and the nominal rate of every link that the group crosses; the algorithms
(`cost/collectives/`) read nothing else.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import msgspec

from foretell.errors import BadInput
from foretell.hardware.cluster import Cluster, Level, Link
from foretell.hardware.measured import Surface


class Group(msgspec.Struct, frozen=True):
    """The ranks of one mesh axis: so many, so far apart."""

    ranks: int
    stride: int = 1


class Hop(msgspec.Struct, frozen=True):
    """A device link that the group crosses inside a domain."""

    level: str
    link: Link
    below: int  # ranks of the group in one unit of the level below
    members: int  # ranks of the group in one unit of this level
    rate: float  # nominal B/s, one way, of one rank


class Crossing(msgspec.Struct, frozen=True):
    """A network that the group crosses.

    Rates are what this group gets when `sharing` groups use the ports at once. A ring or tree leaves a
    unit at one domain however many domains the unit holds, so an over-subscribed rack slows it only when
    the group has few domains there; an all-to-all leaves it everywhere.
    """

    level: str
    link: Link
    members: int  # ranks of the group in one unit of the level below
    units: int  # such units that hold ranks of the group
    through_one: float  # nominal B/s out of a unit for what leaves it at one domain
    through_all: float  # ... for what leaves it at all its domains
    through_rank: float  # ... for what one rank sends


class Route(msgspec.Struct, frozen=True):
    """A group on a cluster, as the algorithms read it."""

    ranks: int  # n
    inside: int  # g, ranks of the group in one domain
    domains: int  # N, domains that hold ranks of the group
    hops: tuple[Hop, ...]  # innermost first; none where each domain holds one rank
    crossings: tuple[Crossing, ...]  # innermost first; none on one domain
    architecture: str  # of the device
    servers: int  # ranks that hold the weights, for push and pull

    @property
    def level(self) -> str:
        """The outermost level crossed."""
        links = (*self.hops, *self.crossings)
        return links[-1].level if links else ""

    @property
    def measured(self) -> dict[str, Surface]:
        """What a calibration timed over the outermost link that is crossed."""
        links = (*self.hops, *self.crossings)
        return links[-1].link.measured if links else {}

    @property
    def networks(self) -> frozenset[str]:
        """Kinds of the networks crossed."""
        return frozenset(crossing.link.kind for crossing in self.crossings)

    @property
    def multicast(self) -> bool:
        """Whether a switch joins the ranks of a domain and reduces for them."""
        return len(self.hops) == 1 and self.hops[0].link.multicast

    @property
    def hop_seconds(self) -> float:
        """One hop of a small message inside a domain."""
        return max((hop.link.latency_seconds for hop in self.hops), default=0.0)

    @property
    def network_seconds(self) -> float:
        """One network hop of a small message, without what the fabric adds."""
        return max((crossing.link.latency_seconds for crossing in self.crossings), default=0.0)

    @property
    def fabric_seconds(self) -> float:
        """What the fabric adds to a network hop (F)."""
        return max((crossing.link.hop_seconds for crossing in self.crossings), default=0.0)


def sharing(group: Group, cluster: Cluster) -> int:
    """Groups of the same axis that use the network ports of one domain at once (phi of Kahira et al. 2021).

    With tp8 inside nodes of eight, the dp axis has eight groups with a rank in each node, and they all
    reduce at the same time.
    """
    inside, domains = _spread(group, cluster)
    return max(1, min(cluster.domain, cluster.ranks) // inside) if domains > 1 else 1


@lru_cache(maxsize=4096)
def route(group: Group, cluster: Cluster, sharing: int = 1, servers: int = 1) -> Route:
    """Where a group lies, and what it gets of every link that it crosses."""
    if sharing < 1:
        raise BadInput(f"{sharing} groups cannot share a link", fix="1 or more")
    if not 1 <= servers <= group.ranks:
        raise BadInput(f"{servers} servers on {group.ranks} ranks", fix=f"1 to {group.ranks}")
    inside, domains = _spread(group, cluster)
    held = _held(group, cluster)
    hops = tuple(_hops(cluster, held))
    crossings = tuple(
        _crossing(cluster, level, below, members, inside, sharing)
        for level, (below, members) in zip(cluster.levels, pairwise(held), strict=True)
        if level.link.per_port and members > below
    )
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


def _hops(cluster: Cluster, held: tuple[int, ...]) -> list[Hop]:
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
    return found


def _crossing(cluster: Cluster, level: Level, below: int, members: int, inside: int, sharing: int) -> Crossing:
    hosts = max(1, cluster.domain // cluster.ranks_per_node)  # an NVLink rack has the ports of all its nodes
    # A rank reaches the ports beside it: a group with one rank in a node cannot fill all eight ports.
    per_rank = max(1.0, level.ports / cluster.ranks_per_node)
    ports = level.ports * hosts / sharing
    domain = level.link.bandwidth * min(ports, per_rank * inside)
    unit = domain * max(1, below // inside) / level.oversubscription
    rank = level.link.bandwidth * min(ports, per_rank)
    return Crossing(level.name, level.link, below, -(-members // below), min(domain, unit), unit, min(rank, unit))
