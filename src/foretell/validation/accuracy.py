"""Accuracy as the oracle paper counts it, beside that of a source's own predictions.

Accuracy is 1 - |predicted - measured| / measured, the mean over the runs of a strategy; the last line is the plain mean
of the strategies (Kahira et al. 2021: 86.74 % for its six).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import NamedTuple

from foretell.validation.evaluate import ComparedRun


class Accuracy(NamedTuple):
    """Of one strategy, or of one model under it."""

    name: str
    runs: int
    ours: float
    theirs: float


def accuracies(compared: Iterable[ComparedRun]) -> list[Accuracy]:
    """A line for each first subset (a strategy), then their mean; empty where no source predicted anything."""
    groups: dict[str, list[ComparedRun]] = {}
    for one in compared:
        if one.time is not None and one.row.claimed_seconds:
            groups.setdefault(one.row.subsets[0], []).append(one)
    found = [_of(name, group) for name, group in groups.items()]
    if not found:
        return []
    ours, theirs = (statistics.fmean(values) for values in zip(*((one.ours, one.theirs) for one in found), strict=True))
    return [*found, Accuracy("mean of strategies", sum(one.runs for one in found), ours, theirs)]


def _of(name: str, group: list[ComparedRun]) -> Accuracy:
    ours = [_accuracy(one.time.predicted, one.row.step_seconds) for one in group if one.time is not None]
    theirs = [_accuracy(one.row.claimed_seconds, one.row.step_seconds) for one in group]
    return Accuracy(name, len(group), statistics.fmean(ours), statistics.fmean(theirs))


def _accuracy(predicted: float, measured: float) -> float:
    return 1 - abs(predicted - measured) / measured
