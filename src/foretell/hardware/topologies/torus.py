"""A torus: each level is a dimension, whose units lie on a ring, with a link to either neighbour.

A ring round a dimension goes from neighbour to neighbour and has every link for itself. What goes from everybody to
everybody passes a quarter of the ring on average, so of k units each gets 8/k of a link, 4/k of its two; where only a
part of a dimension takes part no link closes the ring, and it is half of that (Dally and Towles 2004, in the table of
topologies: the fullest link of a torus has k/8 of what a unit sends, of a mesh k/4). It is for networks: device links
inside a node are as in a tree.
"""

from __future__ import annotations

import msgspec

from foretell.hardware.cluster import Cluster, Level
from foretell.hardware.route import Crossing
from foretell.hardware.topologies.tree import SwitchTree

RING, LINE = 4.0, 2.0
"""Of the two links of a unit, over the number of units: what everybody gets when everybody talks to everybody."""


class Torus(SwitchTree, frozen=True):
    summary = "each level is a ring of its units: neighbours have a link, an all-to-all of k units gets 4/k of its two"
    references = ("Dally and Towles 2004 (Principles and Practices of Interconnection Networks), chapters 3 and 5",)

    def crossing(self, cluster: Cluster, level: Level, below: int, members: int, inside: int, sharing: int) -> Crossing:
        found = super().crossing(cluster, level, below, members, inside, sharing)
        carried = (RING if found.units >= level.size else LINE) / found.units
        return msgspec.structs.replace(found, through_all=found.through_all * min(1.0, carried))


TOPOLOGY = Torus()
