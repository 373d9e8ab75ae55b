"""What one measured run of a source does for the others: how far they are off after it, and whether their bands hold.

Errors are of runs as they are predicted without their source. In each draw one run of every trainer of the source is
the anchor, and is not counted. How far effects go (`carried.py`) and how wide bands are after it is learnt from the
other sources. What a source's own runs would have chosen in hindsight bounds what any such choice can do.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import numpy

from foretell.oracle.bands import ANCHORED, REASONS, LeftOpen, Widths
from foretell.oracle.carried import EffectSpread
from foretell.oracle.posterior import Observed, Posterior, conditional
from foretell.plan.trainer import of_today
from foretell.validation.unseen import DRAWS, UnseenRun, error_of, spreads_without
from foretell.validation.widths import LEAST_SOURCES, Lesson, left_out_with

Numbers: TypeAlias = "numpy.ndarray[Any, numpy.dtype[numpy.float64]]"

ASKED: Final = 40
"""Other runs of a trainer that an anchor is tried on, evenly taken."""

TRIED: Final = 6
"""Of them, those that widths are learnt from, drawn by seed."""

APART: Final = 60
"""Pairs of runs of two trainers of a source that widths are learnt from."""

NEAR: Final = 1.0
"""Doublings of the number of ranks up to which two runs are of one scale."""

WEIGHTS: Final = tuple(step / 10 for step in range(16))
"""How much of an anchor's error may carry over, in hindsight."""

SEVERAL: Final = (3, 10, 30)

LANGUAGE: Final = "llm_measured"
"""The study that one run is asked of most."""


class AnchorDraw(NamedTuple):
    """Runs of one source and trainer: some were measured before, and others are predicted."""

    measured: tuple[UnseenRun, ...]
    asked: tuple[UnseenRun, ...]


class AnchorTrial(NamedTuple):
    """One run after another one was measured."""

    asked: UnseenRun
    anchor: UnseenRun
    log: float  # of measured over predicted, after it
    left: LeftOpen
    worth: float  # in all one for each source


def likeness(asked: UnseenRun, anchor: UnseenRun) -> str:
    """What two runs have in common."""
    mine, its = asked.traits, anchor.traits
    if asked.trainer != anchor.trainer:
        return "another trainer"
    if mine.device != its.device:
        return "another device"
    same = (asked.precision, mine.axes) == (anchor.precision, its.axes)
    if mine.model == its.model:
        near = abs(math.log2(mine.ranks / its.ranks)) <= NEAR
        return LIKENESSES[0] if same and near else LIKENESSES[1]
    return LIKENESSES[2] if same else LIKENESSES[3]


LIKENESSES: Final = ("model, setting, scale", "model", "setting", "device alone", "another device", "another trainer")
"""From the most alike on; the first four are on one device. A setting is the precision and the axes."""


class AnchorCoverage(msgspec.Struct, frozen=True, kw_only=True):
    """Pairs of one likeness: every source has the same weight."""

    pairs: int
    sources: int
    before: float  # mean absolute error without the anchor
    after: float
    inside_before: float  # share in the interval that ships
    inside: float  # in the one after the anchor, learnt from other sources
    of_shipped: float  # its width over that which ships without the anchor, as logarithms
    of_needed: float  # and over that which holds nine of ten without the anchor, learnt like it from other sources


class AnchorErrors(msgspec.Struct, frozen=True, kw_only=True):
    """A study, or all: mean absolute errors of other runs, the mean (and the middle) over its sources."""

    name: str
    sources: int
    ways: dict[str, tuple[float, float]]


class AnchorScores(msgspec.Struct, frozen=True):
    """All that one run does."""

    errors: tuple[AnchorErrors, ...]
    likeness: dict[str, AnchorCoverage]
    widths: Widths  # that all sources teach


def anchor_scores(runs: Sequence[UnseenRun]) -> AnchorScores | None:
    """None where too few sources have two runs of a trainer."""
    spreads = spreads_without(runs)
    tried = trials(runs, spreads)
    if len({one.asked.source for one in tried}) <= LEAST_SOURCES:
        return None
    learnt, held = after_anchors(tried)
    return AnchorScores(tuple(_errors(runs, spreads)), held, learnt)


# errors


def draws(runs: Sequence[UnseenRun], count: int = 1) -> list[list[AnchorDraw]]:
    """Of one source: in each draw so many runs of every trainer, but one less than it has."""
    cells: dict[str, list[UnseenRun]] = {}
    for run in runs:
        cells.setdefault(run.trainer, []).append(run)
    chance = random.Random(1)
    return [
        [_drawn(cell, min(count, len(cell) - 1), chance) for cell in cells.values() if len(cell) > 1]
        for _ in range(DRAWS)
    ]


def _drawn(cell: list[UnseenRun], count: int, chance: random.Random) -> AnchorDraw:
    chosen = set(chance.sample(range(len(cell)), count))
    rest = [run for at, run in enumerate(cell) if at not in chosen]
    most = min(ASKED, len(rest))
    asked = tuple(rest[at * len(rest) // most] for at in range(most))
    return AnchorDraw(tuple(cell[at] for at in sorted(chosen)), asked)


def _of_source(runs: Iterable[UnseenRun]) -> dict[str, list[UnseenRun]]:
    sources: dict[str, list[UnseenRun]] = {}
    for run in runs:
        sources.setdefault(run.source, []).append(run)
    return {source: own for source, own in sources.items() if any(draws(own)[0])}


Way: TypeAlias = Callable[[Sequence[UnseenRun], UnseenRun, EffectSpread], float]


def _none(measured: Sequence[UnseenRun], asked: UnseenRun, spread: EffectSpread) -> float:
    return 0.0


def _whole(measured: Sequence[UnseenRun], asked: UnseenRun, spread: EffectSpread) -> float:
    return statistics.fmean(one.unseen for one in measured)


def _constants(measured: Sequence[UnseenRun], asked: UnseenRun, spread: EffectSpread) -> float:
    """As a kept stack has it: factors on kernels, messages and the host, nothing of the plan or the run itself."""
    told = conditional([Observed(one.traits, one.shares, one.unseen) for one in measured], asked.traits, spread)
    later = sum(share * math.exp(log) for share, log in zip(asked.shares, told.logs, strict=True))
    return math.log(later)


ONE: Final[Mapping[str, Way]] = {"none": _none, "whole": _whole, "stack": _constants}


def _errors(runs: Sequence[UnseenRun], spreads: Mapping[str, EffectSpread]) -> Iterator[AnchorErrors]:
    """By study, and over all sources."""
    sources = _of_source(runs)
    found = {source: _ways(own, spreads[source]) for source, own in sources.items()}
    studies: dict[str, list[str]] = {}
    for source, own in sources.items():
        for study in dict.fromkeys(run.study for run in own):
            studies.setdefault(study, []).append(source)
    together = {"all": list(sources)} if len(studies) > 1 else {}
    for name, own in (studies | together).items():
        each = {way: [found[source][way] for source in own] for way in found[own[0]]}
        ways = {way: (statistics.fmean(errors), statistics.median(errors)) for way, errors in each.items()}
        yield AnchorErrors(name=name, sources=len(own), ways=ways)


def _ways(runs: Sequence[UnseenRun], spread: EffectSpread) -> dict[str, float]:
    """The error of a source's other runs by each way to correct them, the middle over draws."""
    once = draws(runs)
    found = {name: _middle(once, lambda one, run, way=way: way(one, run, spread)) for name, way in ONE.items()}
    for count in (1, *SEVERAL):
        drawn = once if count == 1 else draws(runs, count)[: DRAWS // 3]
        found["anchor" if count == 1 else str(count)] = _middle(drawn, _by_effects(spread))
    return found | {"best": _in_hindsight(once)}


def _by_effects(spread: EffectSpread) -> Callable[[Sequence[UnseenRun], UnseenRun], float]:
    """As `--anchor` does it. What the measured runs say is worked out once for all that are asked."""
    known: dict[int, tuple[Sequence[UnseenRun], Posterior]] = {}

    def said(measured: Sequence[UnseenRun], asked: UnseenRun) -> float:
        if id(measured) not in known:
            known[id(measured)] = measured, Posterior([one.measured for one in measured], spread)
        return known[id(measured)][1].log(asked.traits, asked.seconds)

    return said


def _middle(drawn: Sequence[Sequence[AnchorDraw]], said: Callable[[Sequence[UnseenRun], UnseenRun], float]) -> float:
    return statistics.median(
        statistics.fmean(abs(error_of(run.unseen - said(one.measured, run))) for one in each for run in one.asked)
        for each in drawn
    )


def _in_hindsight(drawn: Sequence[Sequence[AnchorDraw]]) -> float:
    """With the share of the anchor's error, for each likeness, that would have been best for this very source."""
    pairs: dict[str, list[tuple[float, float]]] = {}
    for one in (one for each in drawn for one in each):
        for run in one.asked:
            pairs.setdefault(likeness(run, one.measured[0]), []).append((run.unseen, one.measured[0].unseen))

    def missed(share: float, own: Sequence[tuple[float, float]]) -> float:
        return sum(abs(error_of(log - share * known)) for log, known in own)

    best = {kind: min(WEIGHTS, key=lambda share, own=own: missed(share, own)) for kind, own in pairs.items()}
    return _middle(drawn, lambda measured, run: best[likeness(run, measured[0])] * measured[0].unseen)


# bands


def trials(runs: Sequence[UnseenRun], spreads: Mapping[str, EffectSpread]) -> list[AnchorTrial]:
    """Pairs of runs of one trainer, and of two trainers of one source."""
    chance = random.Random(3)
    found: list[AnchorTrial] = []
    for source, own in _of_source(runs).items():
        drawn = [one for each in draws(own) for one in each]
        pairs = [(one.measured[0], chance.sample(one.asked, min(TRIED, len(one.asked)))) for one in drawn]
        apart = list(_apart(own, chance))
        count = sum(len(asked) for _, asked in pairs) + len(apart)
        for anchor, asked in [*pairs, *((anchor, [run]) for anchor, run in apart)]:
            known = Posterior([anchor.measured], spreads[source])
            for run in asked:
                log = run.unseen - known.log(run.traits, run.seconds)
                found.append(AnchorTrial(run, anchor, log, known.left_open(run.traits, run.seconds), 1 / count))
    return found


def _apart(own: Sequence[UnseenRun], chance: random.Random) -> Iterator[tuple[UnseenRun, UnseenRun]]:
    trainers = sorted({run.trainer for run in own})
    for _ in range(APART if len(trainers) > 1 else 0):
        one, other = chance.sample(trainers, 2)
        yield tuple(chance.choice([run for run in own if run.trainer == name]) for name in (one, other))  # type: ignore[misc]


def lesson_of_anchors(tried: Sequence[AnchorTrial]) -> Lesson:
    names = tuple(ANCHORED)
    reasons = [[one.left.reasons(one.asked.reasons).get(name, 0.0) for name in names] for one in tried]
    return _lesson(tried, names, reasons, [abs(one.log) for one in tried])


def _before(tried: Sequence[AnchorTrial]) -> Lesson:
    """The same runs as if nothing had been measured."""
    names = tuple(REASONS)
    reasons = [[one.asked.much(name) for name in names] for one in tried]
    return _lesson(tried, names, reasons, [abs(one.asked.unseen) for one in tried])


def _lesson(
    tried: Sequence[AnchorTrial], names: tuple[str, ...], reasons: list[list[float]], sizes: list[float]
) -> Lesson:
    worth, truths = numpy.array([one.worth for one in tried]), numpy.ones(len(tried), dtype=bool)
    sources, software = [one.asked.source for one in tried], tuple(of_today(one.asked.trainer) for one in tried)
    return Lesson(names, numpy.array(reasons), numpy.array(sizes), sources, truths, worth, software)


def after_anchors(tried: Sequence[AnchorTrial]) -> tuple[Widths, dict[str, AnchorCoverage]]:
    """Widths that all sources teach, and how those of each likeness hold with the source left out."""
    lesson, before = lesson_of_anchors(tried), _before(tried)
    learnt, after = left_out_with(lesson)
    needed = left_out_with(before)[1]
    shipped = numpy.array([one.asked.width for one in tried])
    elsewhere = numpy.array([one.left.elsewhere for one in tried])
    after = numpy.where(elsewhere, numpy.maximum(after, shipped), numpy.minimum(after, shipped))
    kinds = numpy.array([likeness(one.asked, one.anchor) for one in tried])

    def held(own: Any) -> AnchorCoverage:
        chosen = [one for one, wanted in zip(tried, own, strict=True) if wanted]
        worth = numpy.array([one.worth for one in chosen])

        def mean(values: Any) -> float:
            return float(numpy.average(numpy.asarray(values, dtype=float), weights=worth))

        return AnchorCoverage(
            pairs=len(chosen),
            sources=len({one.asked.source for one in chosen}),
            before=mean([abs(error_of(one.asked.unseen)) for one in chosen]),
            after=mean([abs(error_of(one.log)) for one in chosen]),
            inside_before=mean(before.size[own] <= shipped[own]),
            inside=mean(lesson.size[own] <= after[own]),
            of_shipped=math.exp(mean(numpy.log(after[own] / shipped[own]))),
            of_needed=math.exp(mean(numpy.log(after[own] / needed[own]))),
        )

    found = {kind: held(kinds == kind) for kind in LIKENESSES if (kinds == kind).any()}
    same = kinds != LIKENESSES[-1]
    language = numpy.array([one.asked.study == LANGUAGE for one in tried])
    found["all of one trainer"] = held(same)
    if (same & language).any():
        found["of them language"] = held(same & language)
    return learnt, found
