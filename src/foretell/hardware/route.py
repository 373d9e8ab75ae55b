"""The ranks of a group on a cluster, and what each link between them offers: what a topology gives, and prices read.

A collective sees two worlds: the ranks that reach each other over device links (NVLink, PCIe: a *domain*,
one node or one NVLink rack), and the network between domains.
"""

from __future__ import annotations

import msgspec

from foretell.hardware.cluster import Link
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
