"""Memory on sources that no constant was chosen on: printed numbers against ours, each source left out in turn.

As `unseen` does it for times: a source takes the constants with it that it was in view of, and those are chosen again
without it or are those of the software below. Every source has the same weight, however many numbers it printed. Runs
that met a fault of their cluster are left out. The interval of memory is learnt from these errors, reason by reason,
and tried on each source with what the others taught.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy

from foretell.oracle.memory_band import REASONS, SOFTWARE, WIDTHS
from foretell.validation.evaluate import ComparedRun
from foretell.validation.score import ScoredPair
from foretell.validation.sides import Sides
from foretell.validation.sources import healthy, source_of
from foretell.validation.study import Study
from foretell.validation.widths import Lesson, learnt_widths, left_out

LEAST_SOURCES: Final = 4
"""Of which one is left out and the others teach the widths; of fewer, they are those that ship."""


class UnseenPeak(NamedTuple):
    """One printed number: errors with its source in view, and without it."""

    study: str
    source: str
    trainer: str
    seen: float
    unseen: float
    reasons: tuple[str, ...]  # to doubt what was predicted without its source


class MemoryScore(msgspec.Struct, frozen=True):
    """A study, trainer or source: errors as fractions, the mean over sources."""

    name: str
    sources: int
    numbers: int
    seen: float  # mean absolute error with the source in view
    unseen: float  # and without it
    median: float  # of the absolute errors without it
    bias: float  # median of the errors without it, with their sign
    inside: float  # share of the numbers without it within the widths that other sources taught


class MemoryScores(msgspec.Struct, frozen=True):
    """All of it, and by study, trainer and source."""

    all: MemoryScore | None
    studies: tuple[MemoryScore, ...]
    trainers: tuple[MemoryScore, ...]
    sources: tuple[MemoryScore, ...]
    widths: dict[str, float] | None = None  # as all sources teach them, by reason: logarithms of factors


def unseen_peaks(study: Study, runs: Iterable[Sides]) -> list[UnseenPeak]:
    """Every printed number of a healthy run from both sides, those of one source together."""
    sources: dict[str, list[Sides]] = {}
    for one in runs:
        if one.seen.prediction is not None and one.seen.row.memory and healthy(one.seen.row):
            sources.setdefault(source_of(study.family, study.name, one.seen.row), []).append(one)
    return [
        UnseenPeak(study.name, source, one.seen.row.trainer, seen.error, unseen.error, _reasons(one, seen, unseen))
        for source, own in sources.items()
        for one in own
        for seen, unseen in _pairs(one.seen, one.without)
    ]


def _reasons(one: Sides, seen: ScoredPair, unseen: ScoredPair) -> tuple[str, ...]:
    """Software whose constants go with its source is known by that below it alone."""
    assert one.seen.prediction is not None  # it has a printed number
    told = set(one.seen.prediction.memory_band) | ({SOFTWARE} if seen.predicted != unseen.predicted else set[str]())
    return tuple(reason for reason in REASONS if reason in told)


def _pairs(one: ComparedRun, other: ComparedRun) -> Iterable[tuple[ScoredPair, ScoredPair]]:
    """None where the run is refused without its source: there is nothing to subtract."""
    return zip(one.memory, other.memory, strict=True) if other.prediction is not None else ()


def memory_scores(peaks: Sequence[UnseenPeak]) -> MemoryScores:
    """The score of all numbers, and by study, trainer and source."""
    inside, widths = _inside(peaks)

    def by(key: Callable[[UnseenPeak], str]) -> tuple[MemoryScore, ...]:
        groups: dict[str, list[int]] = {}
        for at, one in enumerate(peaks):
            groups.setdefault(key(one), []).append(at)
        return tuple(_score(name, own, peaks, inside) for name, own in groups.items())

    return MemoryScores(
        all=_score("all", range(len(peaks)), peaks, inside) if peaks else None,
        studies=by(lambda one: one.study),
        trainers=tuple(sorted(by(lambda one: one.trainer), key=lambda one: one.name)),
        sources=tuple(sorted(by(lambda one: one.source), key=lambda one: one.name)),
        widths=widths,
    )


def _score(name: str, own: Sequence[int], peaks: Sequence[UnseenPeak], inside: Sequence[bool]) -> MemoryScore:
    sources: dict[str, list[int]] = {}
    for at in own:
        sources.setdefault(peaks[at].source, []).append(at)

    def mean(of: Callable[[list[int]], float]) -> float:
        return statistics.fmean(map(of, sources.values()))

    return MemoryScore(
        name=name,
        sources=len(sources),
        numbers=len(own),
        seen=mean(lambda group: statistics.fmean(abs(peaks[at].seen) for at in group)),
        unseen=mean(lambda group: statistics.fmean(abs(peaks[at].unseen) for at in group)),
        median=mean(lambda group: statistics.median(abs(peaks[at].unseen) for at in group)),
        bias=mean(lambda group: statistics.median(peaks[at].unseen for at in group)),
        inside=mean(lambda group: statistics.fmean(inside[at] for at in group)),
    )


def _inside(peaks: Sequence[UnseenPeak]) -> tuple[list[bool], dict[str, float] | None]:
    """Of each number whether it lies within what the other sources taught, and what all of them teach together."""
    if len({one.source for one in peaks}) < LEAST_SOURCES:
        return [_size(one) <= sum(WIDTHS[reason] for reason in one.reasons) for one in peaks], None
    lesson = lesson_of(peaks)
    scores, _ = left_out(lesson)
    taught = learnt_widths(lesson, scores)
    widths = {reason: round(taught.stretch * width, 3) for reason, width in taught.widths.items()}
    return [bool(score <= taught.stretch) for score in scores], widths


def lesson_of(peaks: Sequence[UnseenPeak]) -> Lesson:
    """The numbers as examples, every source with the same weight."""
    counts = Counter(one.source for one in peaks)
    return Lesson(
        names=tuple(REASONS),
        reasons=numpy.array([[float(reason in one.reasons) for reason in REASONS] for one in peaks]),
        size=numpy.array(list(map(_size, peaks))),
        source=[one.source for one in peaks],
        healthy=numpy.ones(len(peaks), dtype=bool),
        worth=numpy.array([1 / counts[one.source] for one in peaks]),
    )


def _size(one: UnseenPeak) -> float:
    """Of the error, as a logarithm; without an end where nothing was predicted."""
    return abs(math.log1p(one.unseen)) if one.unseen > -1 else math.inf
