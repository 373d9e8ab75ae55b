"""What choosing by prediction costs: for each sweep of plans, the plan that we would have picked and the best measured.

A choice is a model on a cluster with a batch, of which several plans were measured. The loss is the measured time of
the plan that was predicted fastest over that of the fastest plan, less one. A plan that failed has no time and cannot
be picked here; those that were foretold to fit and to be faster than the pick are counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import msgspec

from foretell.hardware import catalog
from foretell.validation import score
from foretell.validation.evaluate import Compared
from foretell.validation.score import Pair, Regret

HEALTHY: Final = "healthy"
"""The part of a study without runs that met a fault of their cluster, where that is known."""


class Measured(msgspec.Struct, frozen=True):
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
    pick: Measured
    best: Measured
    loss: float
    too_large: bool  # whether the pick, which ran, was foretold not to fit
    failed: int  # plans that were foretold to fit and to be faster than the pick, and failed


class Regrets(msgspec.Struct, frozen=True):
    """All choices of a part of a study."""

    regret: Regret | None
    picks: tuple[Pick, ...]  # the largest loss first


def regrets(compared: Iterable[Compared]) -> Regrets:
    """The choices that runs offer; a single plan is none."""
    choices: dict[tuple[str, ...], list[Compared]] = {}
    for one in compared:
        choices.setdefault(one.row.choice, []).append(one)
    timed = [[one.time for one in group if one.time is not None] for group in choices.values()]
    picks = [_pick(group) for group, pairs in zip(choices.values(), timed, strict=True) if len(pairs) > 1]
    picks.sort(key=lambda one: (-one.loss, one.model, one.ranks, one.batch))
    return Regrets(score.regret(timed), tuple(picks))


def healthy(compared: Iterable[Compared]) -> list[Compared]:
    """The runs without a fault of their cluster, and those that failed."""
    return [one for one in compared if HEALTHY in one.row.subsets or one.row.outcome != "ok"]


def _pick(group: list[Compared]) -> Pick:
    timed = [(one, one.time) for one in group if one.time is not None]
    least = min(time.predicted for _, time in timed)
    # of equal predictions the worst counts
    chosen, time = max((one for one in timed if one[1].predicted == least), key=lambda one: one[1].measured)
    best, fastest = min(timed, key=lambda one: one[1].measured)
    row = chosen.row
    return Pick(
        model=row.model,
        cluster=row.cluster,
        ranks=catalog.cluster(row.cluster).ranks,
        batch=row.job.batch,
        plans=len(timed),
        pick=_measured(chosen, time),
        best=_measured(best, fastest),
        loss=time.measured / fastest.measured - 1,
        too_large=chosen.prediction is not None and not chosen.prediction.fits,
        failed=sum(one.row.outcome != "ok" and _promised(one) < least for one in group),
    )


def _measured(one: Compared, time: Pair) -> Measured:
    return Measured(str(one.row.plan), time.predicted, time.measured, one.row.subsets)


def _promised(one: Compared) -> float:
    """The time that a plan was foretold to take; for ever if it was foretold not to run."""
    fits = one.prediction is not None and one.prediction.fits
    return one.prediction.step_seconds if fits and one.prediction else math.inf
