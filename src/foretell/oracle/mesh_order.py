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
from foretell.plan.facts import facts
from foretell.plan.storage import STORAGES
from foretell.plan.strategies.data import Data
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.strategy import Strategy


class DoublingCost(NamedTuple):
    """The share of a step that a doubling of an axis costs: where its group lies in a node, and where it does not."""

    inside: float
    across: float


SHARES: Final = {
    "tp": DoublingCost(0.07, 0.5),
    "cp": DoublingCost(0.03, 0.15),
    "pp": DoublingCost(0.03, 0.03),
    "dp": DoublingCost(0.0, 0.01),
    "ep": DoublingCost(0.02, 0.06),
}
"""Of the usual axes: guesses, tried on a few large searches by how soon their best plan was found. They decide in which
order meshes are looked at and nothing else: no predicted figure depends on them."""

OTHERS: Final = DoublingCost(0.1, 0.4)

WEIGHTS, GRADIENTS, STATES = 2.0, 3.0, 12.0
"""Bytes of each parameter in mixed precision (Rajbhandari et al. 2020, ZeRO, arXiv 1910.02054, section 3.1); gradients
are of two or four bytes."""

FREE: Final = 0.6
"""The share of a device that weights, gradients and states may fill without anybody having to care for activations."""


class Estimate:
    """A guess at what a mesh costs, in steps of one that loses nothing."""

    def __init__(self, graph: Graph, cluster: Cluster, capacity: float, batch: int) -> None:
        self.node, self.batch = max(1, cluster.ranks_per_node), batch
        self.filled = totals(graph).parameters / capacity  # devices for a byte of each parameter
        self.layers = max(1, facts(graph).layers)

    def __call__(self, axes: Iterable[Strategy]) -> float:
        """Innermost axes lie closest together."""
        cost, inner, split, stages, data = 0.0, 1, 1, 1, None
        for axis in reversed(tuple(axes)):
            cost += self._lost(axis.word, axis.world, inner)
            if isinstance(axis, Data):
                data = axis
                cost += self._lost("ep", axis.experts, inner)
            elif axis.word not in ("cp", "spatial"):
                split *= axis.world
                stages *= axis.world if axis.word == Pipeline.word else 1
            inner *= axis.world
        bubble = (stages - 1) * (data.world if data else 1) / self.batch / 2  # over micro-batches of one; interleaved
        return cost + bubble + max(0.0, self._bytes(data, stages) / split * self.filled - FREE)

    def _lost(self, word: str, ranks: int, inner: int) -> float:
        share = SHARES.get(word, OTHERS)
        return math.log2(ranks) * (share.inside if inner * ranks <= self.node else share.across)

    def _bytes(self, data: Data | None, stages: int) -> float:
        """Of each parameter on a rank of the data axis; most of a model of experts are those."""
        if data is None or data.world == 1:
            return WEIGHTS + GRADIENTS + STATES
        stored, ways = STORAGES[data.storage], data.shard or data.world
        kept = [(WEIGHTS, stored.weights), (GRADIENTS, stored.gradients), (STATES, stored.states)]
        whole = 2 * WEIGHTS * stages / self.layers / data.experts if stored.weights else 0.0  # two layers, gathered
        return whole + sum(size / (ways if shared else data.experts) for size, shared in kept)
