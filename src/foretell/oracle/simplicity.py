"""Which of two plans is the simpler one to run: the order in which an engineer would try them.

1. Fewer groups of ranks. Every axis with more than one rank is a set of process groups to lay out and to debug; groups
   that share states (`shard`) and experts on data ranks (`ep`) are further ones.
2. Fewer things out of the ordinary, by the points of the tables below. They follow what trainers do unasked (0), what
   is one flag of a trainer that everybody has used (1), what has to be tuned or watched (2, 3), and what only a few
   trainers can do at all (4). Data ranks come before tensor ranks, which stay in a node, and these before a pipeline,
   which brings a schedule, stages to balance and a bubble. ZeRO-1 changes where states lie and nothing else; ZeRO-3
   gathers weights in every layer.
3. No gradient accumulation before some of it. A pipeline has micro-batches anyway.

How large an axis is, how many virtual stages or micro-batches there are makes no plan simpler: of such plans the faster
is the better one. Precision, the execution of kernels and adapters say what is trained rather than how it is spread;
they do not count either.
"""

from __future__ import annotations

import functools
from typing import Final

from foretell.caches import forgettable
from foretell.plan.plan import Plan, part_of
from foretell.plan.policies.recompute import Recompute
from foretell.plan.policy import Policy
from foretell.plan.strategies.context import Context
from foretell.plan.strategies.data import Data
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.strategy import Strategy

RARE: Final = 4
"""Points of what no table has: a member that somebody added, or one that few trainers can run."""

STRATEGIES: Final = {"dp": 0, "tp": 1, "pp": 2, "cp": 2, "spatial": 3}
STORAGES: Final = {"replicated": 0, "zero1": 1, "zero2": 2, "zero3": 2}
SCHEDULES: Final = {"1f1b": 0, "gpipe": 1, "interleaved": 1, "zb-h1": 3, "zb-v": 3}
RECOMPUTATIONS: Final = {"none": 0, "attention": 1, "operators": 1, "block": 1, "full": 1}
MODULES: Final = 2
POLICIES: Final = {
    "microbatches": 0,
    "precision": 0,
    "execution": 0,
    "lora": 0,
    "imbalance": 0,
    "overlap": 1,
    "bucket": 1,
}
"""Points of a policy that a plan names; recompute has a table of its own."""

SPLIT: Final = 2
"""Layers of each stage written out, one by one."""

ALL_TO_ALL: Final = 1
"""Context ranks that exchange heads instead of passing keys and values on, and experts apart from the tensor ranks."""

PART: Final = 2
"""An axis for a part of the model."""


@forgettable
@functools.lru_cache(maxsize=65536)
def simplicity(plan: Plan) -> tuple[int, int, bool]:
    """Sorts plans by how simple they are to run, the simplest first; plans of one key are as simple as each other."""
    axes = [axis for axis in plan.axes if axis.world > 1]
    points = sum(map(_axis_points, axes)) + sum(map(_policy_points, plan.policies))
    piped = any(isinstance(axis, Pipeline) for axis in axes)
    return sum(map(_groups, axes)), points, plan.microbatches > 1 and not piped


def _groups(axis: Strategy) -> int:
    """Sets of process groups that an axis asks for."""
    return 1 + (axis.shard > 1) + (axis.experts > 1) if isinstance(axis, Data) else 1


def _axis_points(axis: Strategy) -> int:
    points = STRATEGIES.get(axis.word, RARE) + PART * bool(part_of(axis))
    if isinstance(axis, Data):
        points += STORAGES.get(axis.storage, RARE) + ALL_TO_ALL * bool(axis.expert_tensor)
    if isinstance(axis, Pipeline):
        points += SCHEDULES.get(axis.schedule, RARE) + SPLIT * bool(axis.split)
    if isinstance(axis, Context):
        points += ALL_TO_ALL * (axis.exchange != "ring")
    return points


def _policy_points(policy: Policy) -> int:
    if isinstance(policy, Recompute):
        if policy.numbered or policy.granularity in RECOMPUTATIONS:
            return 2 if policy.numbered else RECOMPUTATIONS[policy.granularity]
        return MODULES * len(policy.granularity.split(",")) if policy.rule.joins else RARE
    return POLICIES.get(policy.word, RARE)
