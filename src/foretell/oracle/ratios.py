"""How well the ratio of two predicted steps is known: two plans for one job on one stack, learnt from measured pairs.

Errors of two plans on the same devices with the same trainer go together, so their ratio is known better than either
step. `foretell validate --coverage` pairs the plans that somebody measured for one model, batch, cluster and trainer;
`--learn` writes `ratios.json`. The interval of a ratio is as wide as what two plans differ in asks for: each difference
has a width, and widths add up in the logarithm, so that plans with more differences are never known better.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from foretell.caches import forgettable
from foretell.oracle.bands import ALWAYS, Widths
from foretell.oracle.priced_plans import Candidate
from foretell.plan.plan import Plan
from foretell.plan.policies.microbatches import Microbatches
from foretell.plan.policies.recompute import Recompute
from foretell.plan.strategies.context import Context
from foretell.plan.strategies.data import Data
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.strategies.tensor import Tensor
from foretell.plan.strategy import Strategy
from foretell.units import product

FILE: Final = Path(__file__).with_name("ratios.json")

NORMAL: Final = 1.6449
"""Standard deviations either way that hold nine in ten of a normal distribution."""

USUAL: Final = (Data, Pipeline, Tensor, Context)
"""Strategies whose pairs were measured on transformers; all others split single operators or do not wait."""


class PlanTraits(NamedTuple):
    """What two plans for one job can differ in. What has a name of its own was measured in pairs of several sources."""

    microbatch: Hashable  # samples of a micro-batch, as the number of parts that the batch is in
    sharding: Hashable  # ZeRO's stage, and the groups that share states
    recompute: Hashable
    policies: Hashable  # all others: precision, execution, overlap, ...
    mesh: Hashable  # ranks of each axis in their order; schedules and options of axes, which were not measured apart
    strategy: Hashable  # axes that are not USUAL


DIFFERENCES: Final = {
    ALWAYS: "what two plans differ in at all",
    "microbatch": "the size of a micro-batch",
    "sharding": "ZeRO's stage or its groups",
    "recompute": "what is recomputed",
    "policies": "other policies (precision, execution, overlap, ...)",
    "mesh": "ranks of an axis, its schedule or its options",
    "strategy": "an axis that splits single operators, or that does not wait",
}
"""What the width of a ratio rests on, in the order in which they are listed."""


class PairEvidence(msgspec.Struct, frozen=True):
    """Measured pairs that have a difference, among others or alone."""

    pairs: int
    alone: int
    sources: int


class OrderRight(msgspec.Struct, frozen=True):
    """Measured pairs that are predicted about as far apart: in how many the faster one by prediction was faster."""

    above: float  # the slower one is predicted more than this share slower
    up_to: float
    pairs: int
    right: int
    told: int  # pairs that are told apart with what other sources taught
    told_right: int


class RatioWidths(msgspec.Struct, frozen=True):
    """All that was learnt of ratios."""

    ratio: Widths
    evidence: dict[str, PairEvidence]  # by difference
    order: tuple[OrderRight, ...]  # from the nearest pairs on


class RatioBand(msgspec.Struct, frozen=True):
    """The uncertainty of the ratio of two predicted steps."""

    differences: tuple[str, ...]
    width: float  # half of the 90 % interval, as a logarithm
    pairs: int  # measured ones behind the difference that has the fewest
    sources: int

    @property
    def factor(self) -> float:
        """How far off the ratio can be, either way (90 % interval)."""
        return math.exp(self.width)

    @property
    def sd(self) -> float:
        """Of the logarithm, if errors were normal."""
        return self.width / NORMAL


@functools.cache
def ratio_widths() -> RatioWidths:
    """What ships."""
    return msgspec.json.decode(FILE.read_bytes(), type=RatioWidths)


def ratio_uncertainty(one: Plan, other: Plan) -> RatioBand:
    """Of the steps of two plans for one job, cluster and trainer; a plan and itself have the ratio 1."""
    return _band(differences(one, other))


def told_apart(one: Candidate, other: Candidate) -> bool:
    """Whether the 90 % interval of the ratio of two predicted steps leaves out 1."""
    apart = abs(math.log(one.step_seconds / other.step_seconds))
    return apart > ratio_uncertainty(one.value, other.value).width


def indistinguishable(one: Candidate, other: Candidate) -> bool:
    """Whether nobody can tell which of two is faster."""
    return not told_apart(one, other)


def order_right(one: Candidate, other: Candidate) -> OrderRight | None:
    """How often measured pairs that are predicted as far apart were in the predicted order; None where none are."""
    slower = math.exp(abs(math.log(one.step_seconds / other.step_seconds))) - 1
    return next((step for step in ratio_widths().order if step.above < slower <= step.up_to), None)


def differences(one: Plan, other: Plan) -> tuple[str, ...]:
    """What two plans differ in; nothing if they are the same."""
    if one == other:
        return ()
    pairs = zip(PlanTraits._fields, traits(one), traits(other), strict=True)
    return (ALWAYS, *(name for name, mine, theirs in pairs if mine != theirs))


@forgettable
@functools.lru_cache(maxsize=65536)
def traits(plan: Plan) -> PlanTraits:
    """What a plan is compared by. Axes of one rank do nothing, whatever they say."""
    axes = [axis for axis in plan.axes if axis.world > 1]
    data = [axis for axis in axes if isinstance(axis, Data) and axis.storage != "replicated"]
    return PlanTraits(
        microbatch=plan.microbatches * product(axis.world for axis in axes if _shares_samples(axis)),
        sharding=tuple((axis.storage, axis.shard) for axis in data),
        recompute=plan.policy(Recompute),
        policies=tuple(policy for policy in plan.policies if not isinstance(policy, Microbatches | Recompute)),
        mesh=tuple(map(_laid_out, axes)),
        strategy=tuple(axis for axis in axes if not isinstance(axis, USUAL)),
    )


@functools.lru_cache(maxsize=4096)
def _shares_samples(axis: Strategy) -> bool:
    return any(part.splitting.shares_samples for part in axis.axes())


def _laid_out(axis: Strategy) -> Hashable:
    """An axis without what is compared apart: data ranks are as many with or without groups that share states."""
    if isinstance(axis, Data):
        return axis.word, axis.world, axis.experts, axis.expert_tensor
    return axis


@functools.lru_cache(maxsize=256)
def _band(found: tuple[str, ...]) -> RatioBand:
    learnt = ratio_widths()
    if not found:
        return RatioBand((), 0.0, 0, 0)
    known = [learnt.evidence[name] for name in found]
    width = learnt.ratio.stretch * sum(learnt.ratio.widths[name] for name in found)
    return RatioBand(found, width, min(one.pairs for one in known), min(one.sources for one in known))
