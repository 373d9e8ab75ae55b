"""A rail-optimised fat tree: each device of a node has a leaf of its own, which all devices of that place share.

Whoever talks to the same place of another node meets one switch. Whoever talks to another place hands the bytes over
inside its node first (NCCL's PXN), so that nothing passes from rail to rail. So the first network narrows nobody
inside of what its leaves join; above it the spine is a tree.
"""

from __future__ import annotations

import msgspec

from foretell.hardware.cluster import Cluster, Level
from foretell.hardware.route import Crossing
from foretell.hardware.topologies.tree import SwitchTree


class RailTree(SwitchTree, frozen=True):
    summary = "a leaf switch for each place in a node: the first network narrows nobody, above it is a tree"
    references = (
        "NVIDIA DGX SuperPOD Reference Architecture RA-11333-001 V11, 2023 (rail-optimised compute fabric)",
        "Wang et al. 2023 (Rail-only: what GPU clusters have, and its spine left out), arXiv 2307.12169",
    )

    def crossing(self, cluster: Cluster, level: Level, below: int, members: int, inside: int, sharing: int) -> Crossing:
        first = next(one for one in cluster.levels if one.link.per_port)
        whole = msgspec.structs.replace(level, oversubscription=1.0) if level is first else level
        return super().crossing(cluster, whole, below, members, inside, sharing)


TOPOLOGY = RailTree()
