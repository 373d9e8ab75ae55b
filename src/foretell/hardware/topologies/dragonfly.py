"""A dragonfly: groups of routers, and between every two groups a few links of their own.

Traffic that goes from everybody to everybody fills all links between groups. Traffic from one group to one other, as
that of a ring, has only the links of this pair on the shortest way; adaptive routing sends it over third groups, where
every byte takes two of the links, so half of what leaves a group is left (Kim et al. 2008: Valiant's routing by way of
a group drawn at random). The outermost level joins the groups; those below it are trees.
"""

from __future__ import annotations

import msgspec

from foretell.hardware.cluster import Cluster, Level
from foretell.hardware.route import Crossing
from foretell.hardware.topologies.tree import SwitchTree

DETOUR = 2.0
"""Links between groups that a byte takes by way of a third group, where the shortest way has one."""


class Dragonfly(SwitchTree, frozen=True):
    summary = "groups with links between every two: rings between groups get half, an all-to-all gets all"
    references = ("Kim et al. 2008 (Technology-Driven, Highly-Scalable Dragonfly Topology), ISCA",)

    def crossing(self, cluster: Cluster, level: Level, below: int, members: int, inside: int, sharing: int) -> Crossing:
        found = super().crossing(cluster, level, below, members, inside, sharing)
        if level is not cluster.levels[-1] or level.size <= 2:  # of two groups there is no third
            return found
        return msgspec.structs.replace(found, through_one=min(found.through_one, found.through_all / DETOUR))


TOPOLOGY = Dragonfly()
