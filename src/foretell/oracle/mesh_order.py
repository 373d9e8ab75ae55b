"""Which meshes a search looks at first: those that engineers would try. A guess, which proves nothing.

The sooner a good plan is priced, the more of the others their bounds exclude, and the better is the answer of a search
that ends early. So meshes come in the order of a rough estimate: each axis that splits layers costs a share of the
step for every doubling of its ranks, more where its group leaves a node, and what cannot hold its weights and states
comes last.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

from foretell.hardware.cluster import Cluster
from foretell.model.graph import Graph
from foretell.model.totals import totals
from foretell.plan.storage import STORAGES
from foretell.plan.strategies.data import Data
from foretell.plan.strategy import Strategy


class DoublingCost(NamedTuple):
    """The share of a step that a doubling of an axis costs: where its group lies in a node, and where it does not."""

    inside: float
    across: float


SHARES: Final = {
    "tp": DoublingCost(0.07, 0.5),
    "cp": DoublingCost(0.03, 0.15),
    "pp": DoublingCost(0.02, 0.02),
    "dp": DoublingCost(0.0, 0.01),
    "ep": DoublingCost(0.02, 0.06),
}
"""Of the usual axes. Megatron-LM on A100 (Narayanan et al. 2021, arXiv 2104.04473, section 5.4) lost half of its
throughput when tensor parallelism left the node; the rest is order of magnitude."""

OTHERS: Final = DoublingCost(0.1, 0.4)

STATES: Final = 16.0
"""Bytes of weights, gradients and Adam's states for each parameter in mixed precision (Rajbhandari et al. 2020,
ZeRO, arXiv 1910.02054, section 3.1)."""

WEIGHTS: Final = 2.0
"""Those of them that every rank holds unless weights themselves are in shares."""


class Estimate:
    """A guess at what a mesh costs, in steps of one that loses nothing."""

    def __init__(self, graph: Graph, cluster: Cluster, capacity: float) -> None:
        self.node = max(1, cluster.ranks_per_node)
        self.filled = totals(graph).parameters / capacity  # devices for a byte of each parameter

    def __call__(self, axes: Iterable[Strategy]) -> float:
        """Innermost axes lie closest together."""
        cost, inner, split, data = 0.0, 1, 1, None
        for axis in reversed(tuple(axes)):
            cost += self._lost(axis.word, axis.world, inner)
            if isinstance(axis, Data):
                data = axis
                cost += self._lost("ep", axis.experts, inner)
            elif axis.word not in ("cp", "spatial"):
                split *= axis.world
            inner *= axis.world
        return cost + max(0.0, self._bytes(data) / split * self.filled - 0.8)

    def _lost(self, word: str, ranks: int, inner: int) -> float:
        share = SHARES.get(word, OTHERS)
        return math.log2(ranks) * (share.inside if inner * ranks <= self.node else share.across)

    def _bytes(self, data: Data | None) -> float:
        """Of each parameter on a rank of the data axis."""
        if data is None or data.world == 1:
            return STATES
        stored, ways, rest = STORAGES[data.storage], data.shard or data.world, STATES - WEIGHTS
        weights = WEIGHTS / (ways if stored.weights else data.experts)  # most weights of such a model are of experts
        return weights + rest / (ways if stored.states else data.experts)
