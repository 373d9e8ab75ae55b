"""Memory on sources that no constant was chosen on: printed numbers against ours, each source left out in turn.

As `unseen` does it for times: a source takes the constants with it that it was in view of, and those are chosen again
without it or are those of the software below. Every source has the same weight, however many numbers it printed. Runs
that met a fault of their cluster are left out. The interval of memory is learnt from these errors, and tried on each
source with what the others taught.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from foretell.oracle.verdict import ENDS
from foretell.validation.evaluate import ComparedRun
from foretell.validation.score import ScoredPair
from foretell.validation.sides import Sides
from foretell.validation.sources import healthy, source_of
from foretell.validation.study import Study

TAIL: Final = 0.05
"""Share of the numbers below the interval, and above."""

LEAST_SOURCES: Final = 4
"""Of which one is left out and the others say where the ends are; of fewer, the ends are those that ship."""


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
    inside: float  # share of the numbers without it between the ends that other sources taught


class MemoryScores(msgspec.Struct, frozen=True):
    """All of it, and by study, trainer and source."""

    all: MemoryScore | None
    studies: tuple[MemoryScore, ...]
    trainers: tuple[MemoryScore, ...]
    sources: tuple[MemoryScore, ...]
    ends: tuple[float, float] | None = None  # of the interval over what is predicted, as all sources teach them


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
    inside = _inside(peaks)

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
        ends=learnt_ends(peaks) if len({one.source for one in peaks}) >= LEAST_SOURCES else None,
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


def _inside(peaks: Sequence[UnseenPeak]) -> list[bool]:
    """Of each number whether it lies in the interval that the other sources taught."""
    sources = {one.source for one in peaks}
    enough = len(sources) >= LEAST_SOURCES
    ends = {
        left: learnt_ends([one for one in peaks if one.source != left]) if enough else ENDS for left in sorted(sources)
    }
    return [is_inside(one.unseen, ends[one.source]) for one in peaks]


def learnt_ends(peaks: Sequence[UnseenPeak]) -> tuple[float, float]:
    """The ends between which nine in ten numbers lie, over what is predicted, every source with the same weight."""
    counts = Counter(one.source for one in peaks)
    ordered = sorted((1 / (1 + one.unseen), 1 / counts[one.source]) for one in peaks if one.unseen > -1)
    least, reached, low, high = TAIL * len(counts), 0.0, ordered[0][0], ordered[-1][0]
    for ratio, weight in ordered:
        low = ratio if reached < least else low
        high = ratio if reached < len(counts) - least else high
        reached += weight
    return low, high


def is_inside(error: float, ends: tuple[float, float] = ENDS) -> bool:
    """Whether what was printed lies in the interval of what was predicted, which is so much too large."""
    return error > -1 and ends[0] <= 1 / (1 + error) <= ends[1]
