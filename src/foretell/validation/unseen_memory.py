"""Memory on sources that no constant was chosen on: printed numbers against ours, each source left out in turn.

As `unseen` does it for times: a source takes the constants with it that it was in view of, and those are chosen again
without it or are those of the software below. Every source has the same weight, however many numbers it printed. Runs
that met a fault of their cluster are left out.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from foretell.oracle.verdict import interval_bytes
from foretell.validation.evaluate import ComparedRun
from foretell.validation.score import ScoredPair
from foretell.validation.sides import Sides
from foretell.validation.sources import healthy, source_of
from foretell.validation.study import Study


class UnseenPeak(NamedTuple):
    """One printed number: errors with its source in view, and without it."""

    study: str
    source: str
    trainer: str
    seen: float
    unseen: float


class MemoryScore(msgspec.Struct, frozen=True):
    """A study, trainer or source: errors as fractions, the mean over sources."""

    name: str
    sources: int
    numbers: int
    seen: float  # mean absolute error with the source in view
    unseen: float  # and without it
    median: float  # of the absolute errors without it
    bias: float  # median of the errors without it, with their sign
    inside: float  # share of the numbers without it in the interval of memory


class MemoryScores(msgspec.Struct, frozen=True):
    """All of it, and by study, trainer and source."""

    all: MemoryScore | None
    studies: tuple[MemoryScore, ...]
    trainers: tuple[MemoryScore, ...]
    sources: tuple[MemoryScore, ...]


def unseen_peaks(study: Study, runs: Iterable[Sides]) -> list[UnseenPeak]:
    """Every printed number of a healthy run from both sides, those of one source together."""
    sources: dict[str, list[Sides]] = {}
    for one in runs:
        if one.seen.prediction is not None and one.seen.row.memory and healthy(one.seen.row):
            sources.setdefault(source_of(study.family, study.name, one.seen.row), []).append(one)
    return [
        UnseenPeak(study.name, source, one.seen.row.trainer, seen.error, unseen.error)
        for source, own in sources.items()
        for one in own
        for seen, unseen in _pairs(one.seen, one.without)
    ]


def _pairs(one: ComparedRun, other: ComparedRun) -> Iterable[tuple[ScoredPair, ScoredPair]]:
    """None where the run is refused without its source: there is nothing to subtract."""
    return zip(one.memory, other.memory, strict=True) if other.prediction is not None else ()


def memory_scores(peaks: Sequence[UnseenPeak]) -> MemoryScores:
    """The score of all numbers, and by study, trainer and source."""

    def by(key: Callable[[UnseenPeak], str]) -> tuple[MemoryScore, ...]:
        groups: dict[str, list[UnseenPeak]] = {}
        for one in peaks:
            groups.setdefault(key(one), []).append(one)
        return tuple(_score(name, own) for name, own in groups.items())

    return MemoryScores(
        all=_score("all", peaks) if peaks else None,
        studies=by(lambda one: one.study),
        trainers=tuple(sorted(by(lambda one: one.trainer), key=lambda one: one.name)),
        sources=tuple(sorted(by(lambda one: one.source), key=lambda one: one.name)),
    )


def _score(name: str, peaks: Sequence[UnseenPeak]) -> MemoryScore:
    sources: dict[str, list[UnseenPeak]] = {}
    for one in peaks:
        sources.setdefault(one.source, []).append(one)
    groups = list(sources.values())
    return MemoryScore(
        name=name,
        sources=len(groups),
        numbers=len(peaks),
        seen=statistics.fmean(statistics.fmean(abs(one.seen) for one in own) for own in groups),
        unseen=statistics.fmean(statistics.fmean(abs(one.unseen) for one in own) for own in groups),
        median=statistics.fmean(statistics.median(abs(one.unseen) for one in own) for own in groups),
        bias=statistics.fmean(statistics.median(one.unseen for one in own) for own in groups),
        inside=statistics.fmean(statistics.fmean(is_inside(one.unseen) for one in own) for own in groups),
    )


def is_inside(error: float) -> bool:
    """Whether what was printed lies in the interval of what was foretold, which is so much too large."""
    low, high = interval_bytes(1.0)
    return error > -1 and low <= 1 / (1 + error) <= high
