"""Several real runs of the same beside virtual time: how far they lie from it, and from each other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from statistics import fmean
from typing import TypeAlias

import msgspec

from foretell.errors import BadInput
from foretell.runtime.assignment import Assignment, Report
from foretell.runtime.measure import text_of
from foretell.virtual.foretold import StalenessComparison, StalenessSeen, apart, seen, together, told

Ran: TypeAlias = tuple[Assignment, Sequence[Report]]


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """Staleness of several runs. `between` are the distances of every two real ones: their noise."""

    algorithm: str
    workers: int
    gradients: int  # of each worker in each run
    runs: tuple[StalenessComparison, ...]
    measured: tuple[float, ...]  # the mean staleness of each
    between: tuple[float, ...]
    together: StalenessComparison  # all runs as one: what is small in each adds up

    @property
    def usual(self) -> tuple[float, float]:
        """How far real runs lie from virtual time, and from each other, in the mean."""
        return fmean(one.distance for one in self.runs), fmean(self.between)


def agreement(runs: Sequence[Ran]) -> Agreement:
    """Of two runs or more, of the same algorithm on as many ranks."""
    assignment, reports = runs[0]
    for other, _ in runs[1:]:
        _check(assignment, other)
    found = [_seen(*run) for run in runs]
    if any(mine == yours for (_, mine), (_, yours) in combinations(runs, 2)):
        raise BadInput("the same run twice", where="--record", fix="records of other runs")
    return Agreement(
        algorithm=text_of(assignment),
        workers=len(reports),
        gradients=assignment.dropped + assignment.steps,
        runs=tuple(map(told, found)),
        measured=tuple(_mean(one) for one in found),
        between=tuple(apart(one.measured, other.measured) for one, other in combinations(found, 2)),
        together=told(together(found)),
    )


def _mean(one: StalenessSeen) -> float:
    return sum(age * times for age, times in one.measured.items()) / one.measured.total()


def _check(one: Assignment, other: Assignment) -> None:
    """Whoever compares what differs finds a difference."""
    for what in ("model", "plan", "method", "batch", "dropped", "steps", "tempo", "disturbance"):
        mine, yours = getattr(one, what), getattr(other, what)
        if mine != yours:
            raise BadInput(f"runs with another {what}: {mine} and {yours}", where="--record", fix="runs of the same")


def _seen(assignment: Assignment, reports: Sequence[Report]) -> StalenessSeen:
    if not any(report.staleness for report in reports) or not reports[0].paces:
        what = f"{assignment.plan}: nobody wrote down how stale gradients were"
        raise BadInput(what, where="--record", fix="records of `foretell run` with ps, of this version")
    return seen(assignment, reports)
