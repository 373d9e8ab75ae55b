"""What choosing by prediction costs: for each sweep of plans, the plan that we would have picked and the best measured.

A choice is a job (a model, a batch, a trainer) on a cluster, for which several plans were measured; runs of one plan
are one plan, with the time in the middle. The loss is the measured time of the picked plan over that of the fastest
plan, less one. There are two picks. Ours is the plan that is predicted fastest of those foretold to run, if with
retries of the allocator (a chance of one half): one that really ran and was foretold to fail cannot be picked, and that
costs too. The pick by
time alone leaves memory out, and its mean is the scoreboard's `regret`.

A plan that failed has no time; those that were foretold to run and to be faster than our pick are counted.
"""

from __future__ import annotations

import functools
import math
import statistics
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from foretell.hardware import catalog
from foretell.validation.evaluate import ComparedRun, choices, plans_of, runs
from foretell.validation.score import Regret, ScoredPair
from foretell.validation.study import MeasuredRun

DOUBTED: Final = Path(__file__).with_name("doubted.toml")

HEALTHY: Final = "healthy"
"""The part of a study without runs that met a fault of their cluster, where that is known."""


class RegretPlan(msgspec.Struct, frozen=True):
    """One plan from both sides."""

    plan: str
    predicted_seconds: float
    measured_seconds: float
    subsets: tuple[str, ...]


class Pick(msgspec.Struct, frozen=True, kw_only=True):
    """One choice: what was picked, what was best, and the loss."""

    model: str
    cluster: str
    ranks: int
    batch: int
    plans: int  # that were measured
    best: RegretPlan
    pick: RegretPlan | None  # None: all plans, which ran, were foretold to fail
    loss: float | None
    by_time: RegretPlan  # picked by time alone
    loss_by_time: float
    failed: int  # plans that were foretold to run and to be faster than the pick, and failed


class Regrets(msgspec.Struct, frozen=True):
    """All choices of a part of a study."""

    regret: Regret | None  # of our picks
    median: float | None  # of their losses
    by_time: Regret | None  # of picks by time alone
    picks: tuple[Pick, ...]  # the largest loss first


def regrets(compared: Iterable[ComparedRun]) -> Regrets:
    """The choices that runs offer; a single plan is none."""
    picks = [_pick(group) for group in choices(compared) if len(plans_of(group)) > 1]
    picks.sort(key=lambda one: (-_worst(one), one.model, one.ranks, one.batch))
    losses = [one.loss for one in picks if one.loss is not None]
    middle = statistics.median(losses) if losses else None
    return Regrets(_summary(losses), middle, _summary([one.loss_by_time for one in picks]), tuple(picks))


def _worst(one: Pick) -> float:
    return one.loss_by_time if one.loss is None else one.loss


def _summary(losses: list[float]) -> Regret | None:
    return Regret(statistics.fmean(losses), max(losses)) if losses else None


class Doubted(msgspec.Struct, frozen=True):
    """Runs of a study that are no ground to judge a choice by, and why."""

    study: str
    runs: tuple[str, ...]  # their ids, or how they begin up to a dash
    why: str

    def has(self, row: MeasuredRun) -> bool:
        return any(row.id == own or (own.endswith("-") and row.id.startswith(own)) for own in self.runs)


@functools.cache
def doubted(study: str) -> tuple[Doubted, ...]:
    """What is doubted of a study; of somebody's own file nothing."""
    read = msgspec.convert(tomllib.loads(DOUBTED.read_text())["doubted"], tuple[Doubted, ...])
    return tuple(one for one in read if one.study == study)


def has_faults(study: str, compared: Iterable[ComparedRun]) -> bool:
    """Whether it is known which runs met a fault of their cluster, or are doubted."""
    return any(HEALTHY in one.row.subsets or _is_doubted(study, one.row) for one in compared)


def healthy(study: str, compared: Sequence[ComparedRun]) -> list[ComparedRun]:
    """The runs without a fault of their cluster and without doubts, and those that failed."""
    marked = any(HEALTHY in one.row.subsets for one in compared)
    return [
        one
        for one in compared
        if one.row.outcome != "ok" or ((not marked or HEALTHY in one.row.subsets) and not _is_doubted(study, one.row))
    ]


def _is_doubted(study: str, row: MeasuredRun) -> bool:
    return any(one.has(row) for one in doubted(study))


def _pick(group: list[ComparedRun]) -> Pick:
    timed = [TimedRun(one, one.time) for one in plans_of(group) if one.time is not None]
    best = min(timed, key=lambda one: one.time.measured)
    fitting = [one for one in timed if one.run.prediction is not None and runs(one.run.prediction)]
    ours, by_time = _fastest(fitting) if fitting else None, _fastest(timed)
    row = best.run.row
    return Pick(
        model=row.model,
        cluster=row.cluster,
        ranks=catalog.cluster(row.cluster).ranks,
        batch=row.job.batch,
        plans=len(timed),
        best=best.told,
        pick=ours.told if ours else None,
        loss=ours.over(best) if ours else None,
        by_time=by_time.told,
        loss_by_time=by_time.over(best),
        failed=sum(one.row.outcome != "ok" and _promised(one) < ours.time.predicted for one in group) if ours else 0,
    )


class TimedRun(NamedTuple):
    """A run that has both times."""

    run: ComparedRun
    time: ScoredPair

    @property
    def told(self) -> RegretPlan:
        row = self.run.row
        return RegretPlan(str(row.plan), self.time.predicted, self.time.measured, row.subsets)

    def over(self, best: TimedRun) -> float:
        """The loss against the best."""
        return self.time.measured / best.time.measured - 1


def _fastest(timed: list[TimedRun]) -> TimedRun:
    """By prediction; of equal predictions the worst counts."""
    least = min(one.time.predicted for one in timed)
    return max((one for one in timed if one.time.predicted == least), key=lambda one: one.time.measured)


def _promised(one: ComparedRun) -> float:
    """The time that a plan was foretold to take; for ever if it was foretold not to run."""
    return one.prediction.step_seconds if one.prediction is not None and runs(one.prediction) else math.inf
