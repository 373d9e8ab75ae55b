"""What every way to join the units of a cluster says about itself: where a group lies, and what it gets of each link.

A cluster is a list of levels, innermost first. A topology answers three questions about a group of ranks (so many, so
far apart) on them; levels that are crossed, routes and prices follow, and no algorithm of collectives knows which
topology it runs on.
"""

from __future__ import annotations

import abc
import functools
from typing import TYPE_CHECKING, ClassVar

import msgspec

from foretell.registry import OpenSet

if TYPE_CHECKING:
    from foretell.hardware.cluster import Cluster
    from foretell.hardware.route import Crossing, Hop

TOPOLOGIES = OpenSet("foretell.hardware.topologies", "topology")


class FabricTopology(msgspec.Struct, frozen=True):
    """One way. The name of its file is what cluster files call it: `topology = "tree"`."""

    summary: ClassVar[str]
    references: ClassVar[tuple[str, ...]] = ()

    @abc.abstractmethod
    def spread(self, cluster: Cluster, size: int, stride: int) -> tuple[int, ...]:
        """Per level, how many units of the level below hold members of one group (the widest one)."""

    @abc.abstractmethod
    def hops(self, cluster: Cluster, held: tuple[int, ...]) -> tuple[Hop, ...]:
        """Device links that are crossed; `held` are ranks of the group in one unit of each level, a device first."""

    @abc.abstractmethod
    def crossings(self, cluster: Cluster, held: tuple[int, ...], sharing: int) -> tuple[Crossing, ...]:
        """Networks that are crossed, and what the group gets of each when `sharing` groups use the ports at once."""


@functools.cache
def fabric_topology(name: str) -> FabricTopology:
    """The topology of this name."""
    return TOPOLOGIES[name].TOPOLOGY
