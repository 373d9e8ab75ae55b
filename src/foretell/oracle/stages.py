"""The best number of layers for each stage of a pipeline.

Stages with as many layers each are not equally long: embedding, head and loss lie at the ends, and the layers may
differ. For one plan every way to cut the model has a bound, from the same prices as a prediction: no rank is faster
than its own work, the way of the first micro-batch to it and the way of the last one back. Ways to cut come in the
order of their bounds (dynamic programming gives the least bound of everything that begins in a certain way), each is
predicted, and once the next bound is no better than the best prediction nothing can be better any more. Where too many
are close to each other it ends before that, and says how much could still be gained.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from foretell.cost.price import priced
from foretell.hardware.cluster import Cluster
from foretell.oracle.stage_bounds import FEW, SplitBounds, bounds, ways
from foretell.oracle.stage_figures import Split, StagesByLayers, with_split
from foretell.plan.setting import Setting
from foretell.plan.strategies.pipeline import Pipeline
from foretell.timeline.result import composed

PRICED = 32
"""Ways to cut one plan that are predicted at most, beside the neighbours of the best."""

CLIMBS = 6
"""How often the neighbours of a better split are asked for theirs."""

WORTH = 1e-4
"""The least part of a step for whose sake they are."""

ROUNDING = 1e-9
"""The part of a step by which equal ones differ."""

NEIGHBOURS = 8
"""Of the ways to cut that differ by one layer, those with the least bounds are predicted."""

SLOWEST = 2.0
"""Where the trainer's own stages do not fit, others may take so many times as long as they would."""


class StageSplit(msgspec.Struct, frozen=True):
    """A plan with the layers of each stage, predicted."""

    split: Split
    step_seconds: float
    memory_bytes: float
    by_rank: tuple[float, ...]  # bytes of the devices along the pipeline


class BestSplit(msgspec.Struct, frozen=True, kw_only=True):
    """The best stages that were found for one plan, and what could be better at most."""

    plan: str
    split: Split
    step_seconds: float
    memory_bytes: float
    usual: StageSplit  # by the trainer's rule, whether it fits or not
    least_seconds: float  # no split takes less
    priced: int

    @property
    def gain(self) -> float:
        """The part of the usual step that is saved."""
        return 1 - self.step_seconds / self.usual.step_seconds

    @property
    def gap(self) -> float:
        """The part of the step that another split could still save at most."""
        return max(0.0, 1 - self.least_seconds / self.step_seconds)


def may_choose(setting: Setting) -> bool:
    """Whether the layers of each stage are the user's choice, and there is something to choose."""
    pipeline, trainer = setting.plan.axis(Pipeline), setting.trainer
    return pipeline is not None and pipeline.ranks > 1 and trainer.legal.uneven_stages and trainer.offered.splits


@dataclass
class Effort:
    """How many plans were priced to choose something."""

    spent: int = 0


def best_split(
    setting: Setting,
    cluster: Cluster,
    capacity: float,
    below: float = float("inf"),
    effort: Effort | None = None,
) -> BestSplit | None:
    """The best stages for a plan whose own split is left aside; None: none fits, or takes less than `below`."""
    search = _StageSearch(setting, cluster, capacity, below)
    found = search.run()
    if effort is not None:
        effort.spent += search.stages.priced + len(search.cuts)
    return found


class _StageSearch:
    def __init__(self, setting: Setting, cluster: Cluster, capacity: float, below: float) -> None:
        self.setting, self.cluster, self.capacity = setting, cluster, capacity
        self.stages = StagesByLayers(setting, cluster)
        self.cuts: dict[Split, StageSplit] = {}
        self.best: StageSplit | None = None
        self.usual = self._take(self.stages.split)
        self.limit = min(below, SLOWEST * self.usual.step_seconds)
        self.least = self.reached  # of what was not predicted
        count = ways(self.stages)
        self.most = count if count <= FEW else PRICED

    @property
    def reached(self) -> float:
        """Seconds that a split has to be below."""
        return min(self.limit, self._seconds)

    @property
    def _seconds(self) -> float:
        return self.best.step_seconds if self.best else float("inf")

    def run(self) -> BestSplit | None:
        if self._possible():
            self._make_room()
            self._climb()
            self._in_order()
        if self.least < self.reached:
            self._climb()
        if self.best is None or self.best.step_seconds >= self.limit:
            return None
        return BestSplit(
            plan=str(with_split(self.setting.plan, self.best.split)),
            split=self.best.split,
            step_seconds=self.best.step_seconds,
            memory_bytes=self.best.memory_bytes,
            usual=self.usual,
            least_seconds=min(self.least, self.best.step_seconds),
            priced=len(self.cuts),
        )

    def _possible(self) -> bool:
        """Whether any split can be below the limit; what is slower than the best so far need not be looked at."""
        if self.limit >= self.usual.step_seconds:
            for split in (self.stages.balanced(), self.stages.shared()):
                self._take(split)
        return self.bounds.least() < self.reached

    @functools.cached_property
    def bounds(self) -> SplitBounds:
        return bounds(self.stages, self.capacity, self.reached)

    def _in_order(self) -> None:
        """Predict splits from the least bound on, until the next bound is no better than the best or too many were."""
        for taken, (bound, split) in enumerate(self.bounds.in_order()):
            self.least = min(bound, self.reached)
            if bound >= self.reached or split is None or taken >= self.most:
                return
            self._take(split)
        self.least = self.reached  # that were all

    def _make_room(self) -> None:
        """Where nothing fits yet: from the usual split on, take layers from the fullest rank as long as that helps."""
        now = self.usual
        while self.best is None:
            others = [split for split in _moved(now.split) if self._relieves(split, now)]
            found = [self._take(split) for split in sorted(others, key=self.bounds.of)[:NEIGHBOURS]]
            least = min(found, key=lambda cut: cut.memory_bytes, default=now)
            if least.memory_bytes >= now.memory_bytes:
                return
            now = least

    def _relieves(self, split: Split, now: StageSplit) -> bool:
        """Whether the rank that holds most has fewer layers than before."""
        partition = self.stages.partition
        fullest = max(range(partition.ranks), key=lambda rank: now.by_rank[rank])
        own = {part for part, rank in zip(partition.part, partition.rank, strict=True) if rank == fullest}
        return sum(split[part] for part in own) < sum(now.split[part] for part in own)

    def _climb(self) -> None:
        """From the best split to better ones beside it, as long as there are any."""
        for _ in range(CLIMBS):
            if self.best is None or not self._neighbours(self.best.split):
                return

    def _neighbours(self, split: Split) -> bool:
        """Whether one of the splits that differ by one layer is better."""
        before = self._seconds
        bounded = sorted((self.bounds.of(other), other) for other in _moved(split) if other not in self.cuts)
        for bound, other in bounded[:NEIGHBOURS]:
            if bound < self._seconds:
                self._take(other)
        return self._seconds < before * (1 - WORTH)

    def _take(self, split: Split) -> StageSplit:
        found = self._cut(split)
        if found.memory_bytes <= self.capacity and (self.best is None or _better(found, self.best)):
            self.best = found
        return found

    def _cut(self, split: Split) -> StageSplit:
        if split not in self.cuts:
            plan = with_split(self.setting.plan, split)
            made = composed(priced(msgspec.structs.replace(self.setting, plan=plan), self.cluster), self.cluster)
            self.cuts[split] = StageSplit(split, made.step_seconds, made.memory_bytes, made.memory.by_stage)
        return self.cuts[split]


def _better(one: StageSplit, other: StageSplit) -> bool:
    """Whether a split is faster; of two that are as fast, whether it is smaller, or its longest stage is shorter."""
    if abs(one.step_seconds - other.step_seconds) > ROUNDING * other.step_seconds:
        return one.step_seconds < other.step_seconds
    return (one.memory_bytes, max(one.split)) < (other.memory_bytes, max(other.split))


def _moved(split: Split) -> Iterator[Split]:
    """One layer from a stage to another, none left without."""
    for giver, taker in itertools.permutations(range(len(split)), 2):
        changes = {giver: -1, taker: 1}
        moved = tuple(count + changes.get(at, 0) for at, count in enumerate(split))
        if min(moved) > 0:
            yield moved
