"""How far predictions are from measurements: errors as fractions of the measured value."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

LEAST_TO_RANK = 3
"""Runs that an order is read off; two are in order by chance every other time."""


class ScoredPair(NamedTuple):
    """One quantity from both sides."""

    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Of the measured value: 0.1 is a prediction 10 % too high."""
        return self.predicted / self.measured - 1


class Errors(msgspec.Struct, frozen=True):
    """Errors of many predictions, as fractions."""

    n: int
    mape: float  # mean of the absolute errors
    median: float  # of the absolute errors
    p90: float  # nine in ten absolute errors are smaller
    bias: float  # mean of the errors with their sign


class Verdict(NamedTuple):
    """What was foretold of one run, and whether it ran."""

    foretold: bool
    ran: bool
    chance: float  # that it would run, as foretold


class FitVerdicts(msgspec.Struct, frozen=True):
    """Whether plans were told right to run or to fail."""

    n: int
    accuracy: float
    failures: int  # of the n
    failures_foretold: int
    balanced: float | None  # mean of the shares told right of those that ran and of those that failed, where both are
    brier: float  # mean square of the chance that was foretold less what came: 0 is best, 0.25 is knowing nothing


class Regret(msgspec.Struct, frozen=True):
    """What choosing by prediction costs: time of the predicted best over the true best, less one."""

    mean: float
    max: float


def errors(pairs: Iterable[ScoredPair]) -> Errors | None:
    """None where nothing was compared."""
    signed = [pair.error for pair in pairs]
    if not signed:
        return None
    sizes = sorted(map(abs, signed))
    return Errors(
        n=len(sizes),
        mape=statistics.fmean(sizes),
        median=statistics.median(sizes),
        p90=quantile(sizes, 0.9),
        bias=statistics.fmean(signed),
    )


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which so large a share lies, between two by straight line."""
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def fits(verdicts: Iterable[Verdict]) -> FitVerdicts | None:
    """None where nothing was foretold."""
    known = list(verdicts)
    if not known:
        return None
    ran, failed = ([one for one in known if one.ran == came] for came in (True, False))
    told = [sum(one.foretold == one.ran for one in own) for own in (ran, failed)]
    return FitVerdicts(
        n=len(known),
        accuracy=sum(told) / len(known),
        failures=len(failed),
        failures_foretold=told[1],
        balanced=(told[0] / len(ran) + told[1] / len(failed)) / 2 if ran and failed else None,
        brier=statistics.fmean((one.chance - one.ran) ** 2 for one in known),
    )


def rank_correlation(groups: Iterable[Sequence[ScoredPair]]) -> float | None:
    """Spearman's coefficient inside each group of ways to do the same thing; the median over groups."""
    found = [spearman(group) for group in groups if len(group) >= LEAST_TO_RANK]
    known = [value for value in found if value is not None]
    return statistics.median(known) if known else None


def spearman(pairs: Sequence[ScoredPair]) -> float | None:
    """Pearson's coefficient of the ranks, ties at their mean; None where one side is all the same."""
    predicted, measured = ranks([pair.predicted for pair in pairs]), ranks([pair.measured for pair in pairs])
    if len(set(predicted)) == 1 or len(set(measured)) == 1:
        return None
    return statistics.correlation(predicted, measured)


def ranks(values: Sequence[float]) -> list[float]:
    """The place of each value, equal ones at the mean of their places."""
    order = sorted(range(len(values)), key=values.__getitem__)
    found = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and values[order[end + 1]] == values[order[start]]:
            end += 1
        for place in order[start : end + 1]:
            found[place] = (start + end) / 2
        start = end + 1
    return found


def regret(groups: Iterable[Sequence[ScoredPair]]) -> Regret | None:
    """Of the predicted best of each group with a choice; of equal predictions the worst counts."""
    found: list[float] = []
    for group in groups:
        if len(group) < 2:
            continue
        best = min(pair.predicted for pair in group)
        chosen = max(pair.measured for pair in group if pair.predicted == best)
        found.append(chosen / min(pair.measured for pair in group) - 1)
    return Regret(statistics.fmean(found), max(found)) if found else None
