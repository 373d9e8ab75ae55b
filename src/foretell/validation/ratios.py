"""Ratios of two plans learnt from measured pairs, and whether they hold for sources that they were not learnt from.

A pair is two plans that somebody measured for one job (model, batch, lengths) on one cluster with one trainer; runs of
one plan are one plan, with the time in the middle. Only contenders are paired: plans that are predicted at most a
quarter slower than the fastest of their sweep. Sweeps hold plans that nobody would take, such as tensor ranks over
nodes; their errors are larger, and say nothing of two plans that somebody has to choose between.

A sweep of n plans has n (n - 1) / 2 pairs and n - 1 differences that are free, so that each pair counts 2 / n; a source
then weighs as the square root of what its pairs count, as in `oracle/bands.py`.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy

from foretell.oracle.bands import ALWAYS
from foretell.oracle.ratios import DIFFERENCES, OrderRight, PairEvidence, RatioWidths, differences
from foretell.oracle.recommend import SLOWER
from foretell.oracle.simplicity import simplicity
from foretell.plan.plan import Plan
from foretell.validation.evaluate import ComparedRun, choices, plans_of
from foretell.validation.sources import healthy, source_of
from foretell.validation.widths import Lesson, Numbers, allowed, learnt_widths, left_out

CONTENDER: Final = 0.25
"""How much slower than the fastest of its sweep a plan is predicted at most."""

STEPS: Final = (0.01, 0.03, 0.05, 0.1, 0.25)
"""How far apart two plans are predicted: right ends of what the order is counted in."""


class TimedPlan(NamedTuple):
    """A plan of a sweep from both sides."""

    plan: Plan
    predicted: float
    measured: float


class MeasuredPair(NamedTuple):
    """Two plans of one sweep: logarithms of the ratio of their steps."""

    source: str
    sweep: str  # a name of its own among all studies
    one: TimedPlan
    other: TimedPlan
    differences: tuple[str, ...]
    worth: float

    @property
    def predicted(self) -> float:
        return math.log(self.one.predicted / self.other.predicted)

    @property
    def measured(self) -> float:
        return math.log(self.one.measured / self.other.measured)


class HeldOutPairs(msgspec.Struct, frozen=True):
    """Pairs of one source, tried with what all others taught."""

    pairs: int
    sweeps: int
    inside: float
    factor: float  # that the others' widths allow either way, in the middle
    error: float  # of the ratio, as a factor, in the middle


class SimplestPicks(msgspec.Struct, frozen=True):
    """What it costs to take the simplest plan that cannot be told from the one predicted fastest."""

    at_most: float  # slower, as predicted
    sweeps: int
    simpler: int  # sweeps that have one
    as_fast: int  # of these, where it was measured as fast or faster
    mean: float  # of its measured time over that of the one predicted fastest, less one, where it is another plan
    worst: float


class RatioCoverage(msgspec.Struct, frozen=True):
    """Whether nine of ten ratios lie inside, source by source left out."""

    pairs: int
    sweeps: int
    inside: float
    by_source: float  # mean over sources
    with_fastest: float  # inside, of pairs with the plan predicted fastest: what a recommendation asks
    sources: dict[str, HeldOutPairs]
    simplest: SimplestPicks
    widths: RatioWidths


def measured_pairs(family: str, study: str, compared: Iterable[ComparedRun]) -> Iterator[MeasuredPair]:
    """The pairs of contenders of a study."""
    runs: dict[str, list[ComparedRun]] = {}
    for one in compared:
        if healthy(one.row):
            runs.setdefault(source_of(family, study, one.row), []).append(one)
    for source, own in runs.items():
        for number, sweep in enumerate(choices(own)):
            rivals = contenders(sweep)
            for one, other in itertools.combinations(rivals, 2):
                unlike = differences(one.plan, other.plan)
                yield MeasuredPair(source, f"{study} {number}", one, other, unlike, 2 / len(rivals))


def contenders(sweep: Iterable[ComparedRun]) -> list[TimedPlan]:
    """The plans of a sweep that somebody would choose from, the predicted fastest first."""
    times = [(one.row.plan, one.time) for one in plans_of(sweep)]
    timed = [TimedPlan(plan, time.predicted, time.measured) for plan, time in times if time is not None]
    timed.sort(key=lambda one: one.predicted)
    return [one for one in timed if one.predicted <= (1 + CONTENDER) * timed[0].predicted]


def ratio_coverage(pairs: Sequence[MeasuredPair]) -> RatioCoverage:
    """Learn the widths of ratios; each source is tried with what the others taught, their stretch included."""
    lesson = pair_lesson(pairs)
    learnt = learnt_widths(lesson, left_out(lesson)[0])
    widths = allowed(lesson)
    inside = lesson.size <= widths
    sources: dict[str, HeldOutPairs] = {}
    for source in sorted(set(lesson.source)):
        own = numpy.array([other == source for other in lesson.source])
        sources[source] = HeldOutPairs(
            pairs=int(own.sum()),
            sweeps=len({pair.sweep for pair in pairs if pair.source == source}),
            inside=float(inside[own].mean()),
            factor=math.exp(float(numpy.median(widths[own]))),
            error=math.exp(float(numpy.median(lesson.size[own]))),
        )
    fastest = numpy.array([pair.one is _first(sweep) for sweep in _sweeps(pairs) for pair in sweep])
    return RatioCoverage(
        pairs=len(pairs),
        sweeps=sum(one.sweeps for one in sources.values()),
        inside=float(inside.mean()),
        by_source=statistics.fmean(one.inside for one in sources.values()),
        with_fastest=float(inside[fastest].mean()),
        sources=sources,
        simplest=_simplest(pairs, widths),
        widths=RatioWidths(learnt, evidence(pairs), tuple(_order(pairs, widths))),
    )


def pair_lesson(pairs: Sequence[MeasuredPair]) -> Lesson:
    """An example for each pair."""
    names = tuple(DIFFERENCES)
    reasons = numpy.array([[float(name in pair.differences) for name in names] for pair in pairs])
    size = numpy.array([abs(pair.predicted - pair.measured) for pair in pairs])
    truths = numpy.ones(len(size), dtype=bool)
    worth = numpy.array([pair.worth for pair in pairs])
    return Lesson(names, reasons, size, [pair.source for pair in pairs], truths, worth)


def evidence(pairs: Sequence[MeasuredPair]) -> dict[str, PairEvidence]:
    """How many pairs have each difference."""
    found: dict[str, PairEvidence] = {}
    for name in DIFFERENCES:
        own = [pair for pair in pairs if name in pair.differences]
        alone = sum(set(pair.differences) == {ALWAYS, name} for pair in own)
        found[name] = PairEvidence(len(own), alone, len({pair.source for pair in own}))
    return found


def _sweeps(pairs: Sequence[MeasuredPair]) -> list[list[MeasuredPair]]:
    """Pairs of one sweep stand together."""
    return [list(own) for _, own in itertools.groupby(pairs, key=lambda pair: (pair.source, pair.sweep))]


def _first(sweep: Sequence[MeasuredPair]) -> TimedPlan:
    return sweep[0].one


def _order(pairs: Sequence[MeasuredPair], widths: Numbers) -> Iterator[OrderRight]:
    for above, up_to in itertools.pairwise((0.0, *STEPS)):
        own = [
            (pair.predicted * pair.measured > 0, abs(pair.predicted) > width)
            for pair, width in zip(pairs, widths.tolist(), strict=True)
            if above < math.exp(abs(pair.predicted)) - 1 <= up_to
        ]
        if own:
            told = [right for right, apart in own if apart]
            yield OrderRight(above, up_to, len(own), sum(right for right, _ in own), len(told), sum(told))


def _simplest(pairs: Sequence[MeasuredPair], widths: Numbers) -> SimplestPicks:
    """Choose in each sweep with the widths that the other sources taught."""
    most = iter(widths.tolist())
    sweeps = _sweeps(pairs)
    slower: list[float] = []
    for sweep in sweeps:
        first = _first(sweep)
        own = [(pair, min(next(most), math.log(1 + SLOWER))) for pair in sweep]
        near = [pair.other for pair, width in own if pair.one is first and -pair.predicted <= width]
        pick = min([first, *near], key=lambda one: (simplicity(one.plan), one.predicted))
        if pick is not first:
            slower.append(pick.measured / first.measured - 1)
    mean, worst = (statistics.fmean(slower), max(slower)) if slower else (0.0, 0.0)
    return SimplestPicks(SLOWER, len(sweeps), len(slower), sum(one <= 0 for one in slower), mean, worst)
