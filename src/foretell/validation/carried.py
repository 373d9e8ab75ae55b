"""How far the effects go that runs of one stack share: learnt from pairs of published runs.

The mean product of what two runs are off by is the sum of the variances of the effects that they share (the method of
moments: Henderson 1953), so the variances are those, none below zero, that explain the products of pairs best. What
runs differ in that have device, model and scale in common is of the one run. Every source and trainer has the same
weight, and errors are those of constants that never saw the source.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import msgspec
import numpy

from foretell.oracle.carried import EffectSpread, covariance, shared

if TYPE_CHECKING:
    from foretell.validation.unseen import UnseenRun

Numbers: TypeAlias = "numpy.ndarray[Any, numpy.dtype[numpy.float64]]"

PAIRS: Final = 80
"""Of each source and trainer, drawn by seed."""

MOST: Final = 0.6
"""Logarithm of the error beyond which a run counts no more: one that is twice off has another cause."""

NEAR: Final = 1.0
"""Doublings of the number of ranks up to which two runs have their scale in common."""

FINEST: Final = 1e-12

OF_ALONE: Final = (1.0, 0.5, 0.25, 0.125)
"""Shares of the mean square of what runs alike differ by that are tried as the variance of one run."""


class RunPair(NamedTuple):
    """Two runs of a source, with the weight of one of all that were drawn of their trainers."""

    one: UnseenRun
    other: UnseenRun
    worth: float

    @property
    def product(self) -> float:
        return _cut(self.one.unseen) * _cut(self.other.unseen)

    @property
    def shares(self) -> list[float]:
        """What computes, messages and the host: shares of one step times those of the other."""
        steps = self.one.seconds, self.other.seconds
        return [own * its / (sum(steps[0]) * sum(steps[1])) for own, its in zip(*steps, strict=True)]


class RunPairs(NamedTuple):
    """Of one trainer, and of two."""

    alike: tuple[RunPair, ...]
    apart: tuple[RunPair, ...]

    def without(self, source: str) -> RunPairs:
        return RunPairs(
            tuple(pair for pair in self.alike if pair.one.source != source),
            tuple(pair for pair in self.apart if pair.one.source != source),
        )


def drawn_pairs(runs: Sequence[UnseenRun]) -> RunPairs:
    """RunPairs of each source: two runs of one trainer, each with itself, and two of two trainers."""
    sources: dict[str, dict[str, list[UnseenRun]]] = {}
    for run in runs:
        sources.setdefault(run.source, {}).setdefault(run.trainer, []).append(run)
    chance = random.Random(2)
    alike = [pair for trainers in sources.values() for own in trainers.values() for pair in _alike(own, chance)]
    apart = [pair for trainers in sources.values() if len(trainers) > 1 for pair in _apart(trainers, chance)]
    return RunPairs(tuple(alike), tuple(apart))


def _alike(own: list[UnseenRun], chance: random.Random) -> Iterator[RunPair]:
    count = min(PAIRS, len(own) * (len(own) - 1))
    for _ in range(count):
        one, other = chance.sample(own, 2)
        yield RunPair(one, other, 1 / count)
    alone = chance.sample(own, min(PAIRS, len(own)))
    yield from (RunPair(run, run, 1 / len(alone)) for run in alone)


def _apart(trainers: dict[str, list[UnseenRun]], chance: random.Random) -> Iterator[RunPair]:
    for _ in range(PAIRS):
        one, other = chance.sample(sorted(trainers), 2)
        yield RunPair(chance.choice(trainers[one]), chance.choice(trainers[other]), 1 / PAIRS)


def learnt_spread(pairs: RunPairs) -> EffectSpread:
    """The variances that explain the pairs."""
    rows = numpy.array([[*_effects(pair), float(pair.one is pair.other)] for pair in pairs.alike])
    products = numpy.array([pair.product for pair in pairs.alike])
    worth = numpy.sqrt([pair.worth for pair in pairs.alike])
    *shared_by, _ = _no_less_than_zero(rows * worth[:, None], products * worth)
    *parts, axes = (round(value, 5) for value in shared_by)
    run = _carrying_best(pairs, rows[:, :-1], numpy.array(shared_by))
    found = EffectSpread(*parts, run=round(run, 5), trainer=1.0, axes=axes)
    return msgspec.structs.replace(found, trainer=round(_across(pairs, found), 3))


def _effects(pair: RunPair) -> Iterator[float]:
    """Shared effects, each by its share of both steps."""
    device, model, links, host, scale, axes = shared(pair.one.traits, pair.other.traits)
    of = pair.shares
    yield from (device * of[0], model * of[0], links * of[1], host * of[2], scale, axes)


def _carrying_best(pairs: RunPairs, rows: Numbers, variances: Numbers) -> float:
    """The variance of one run, of shares of what runs alike differ by, with which one run corrects another best.

    Few runs that are far off make most of a mean square, and would have all others carry over too little.
    """
    told = (rows @ variances).tolist()
    asked = [(pair, said) for pair, said in zip(pairs.alike, told, strict=True) if pair.one is not pair.other]
    own = [list(_effects(RunPair(pair.one, pair.one, pair.worth))) for pair, _ in asked]
    alone = (numpy.array(own).reshape(-1, len(variances)) @ variances).tolist()
    least = _alone(pairs)

    def missed(run: float) -> float:
        """The mean over sources of what is left of the other run's error."""
        left = (
            (pair.worth, pair.other.unseen - said / (same + run) * pair.one.unseen)
            for (pair, said), same in zip(asked, alone, strict=True)
        )
        return math.fsum(worth * min(1.0, abs(math.expm1(-log))) for worth, log in left)

    return min((share * least for share in OF_ALONE), key=missed) if least else least


def _alone(pairs: RunPairs) -> float:
    """Half the mean square of what two runs differ by that have all else in common."""
    cells: dict[tuple[str, str], list[float]] = {}
    for one, other, _ in pairs.alike:
        if one is not other and _near(one, other):
            cells.setdefault((one.source, one.trainer), []).append(min(MOST, abs(one.unseen - other.unseen)) ** 2 / 2)
    return statistics.fmean(statistics.fmean(own) for own in cells.values()) if cells else 0.0


def _near(one: UnseenRun, other: UnseenRun) -> bool:
    mine, its = one.traits, other.traits
    return (mine.device, mine.model) == (its.device, its.model) and abs(math.log2(mine.ranks / its.ranks)) <= NEAR


def _across(pairs: RunPairs, spread: EffectSpread) -> float:
    """The share of the covariance that is left between two trainers: least squares, from 0 to 1."""
    product, square = 0.0, 0.0
    for pair in pairs.apart:
        *parts, all_of = covariance(pair.one.traits, pair.other.traits, spread)
        said = sum(share * part for share, part in zip(pair.shares, parts, strict=True)) + all_of
        product += said * pair.product
        square += said * said
    return min(1.0, max(0.0, product / square)) if square else 0.0


def _no_less_than_zero(rows: Numbers, values: Numbers) -> list[float]:
    """Least squares with no coefficient below zero: one coordinate after the other (Friedman et al. 2007)."""
    gram, pull = rows.T @ rows, rows.T @ values
    found = numpy.zeros(len(pull))
    for _ in range(10_000):
        before = found.copy()
        for at in range(len(found)):
            if gram[at, at]:
                found[at] = max(0.0, found[at] + (pull[at] - gram[at] @ found) / gram[at, at])
        if numpy.abs(found - before).max() < FINEST:
            break
    return found.tolist()


def _cut(log: float) -> float:
    return max(-MOST, min(MOST, log))
