"""The score: how far predictions are on sources that no constant was chosen on, by study and by trainer.

Three figures for the same runs: with the constants that ship, with those that are left when the run's source was never
seen (`left_out`), and with the latter after one run of the source corrected all others. Every source has the same
weight, however many runs it has. Runs that met a fault of their cluster are left out.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from foretell.hardware import catalog
from foretell.validation.evaluate import ComparedRun, compare
from foretell.validation.in_view import in_view, staying
from foretell.validation.left_out import chosen_again, is_touched, log_ratio, predictor_without
from foretell.validation.sources import healthy, source_of
from foretell.validation.study import Study

DRAWS: Final = 21
"""Anchors that are drawn of each source and trainer; the middle of what they leave is told."""


class UnseenRun(NamedTuple):
    """One run: logarithms of measured over predicted, with its source in view and without."""

    study: str
    source: str
    trainer: str
    seen: float
    unseen: float
    inside: bool  # the interval that ships


class UnseenScore(msgspec.Struct, frozen=True):
    """A study or a trainer: mean absolute errors as fractions, the mean over sources."""

    name: str
    sources: int
    runs: int
    seen: float  # the source was in view
    unseen: float  # its constants were chosen again without it
    anchored: float | None  # and one of its runs corrected the others; None: no source has two
    bias: float  # without it: median of predicted over measured less one, the mean over sources
    inside: float  # share of runs inside the interval that ships


class UnseenScores(msgspec.Struct, frozen=True):
    """All of it, and how many numbers were chosen."""

    all: UnseenScore | None
    studies: tuple[UnseenScore, ...]
    trainers: tuple[UnseenScore, ...]
    sources: tuple[UnseenScore, ...]
    constants: int  # that were chosen with scored runs in view
    staying: int  # of them, that a source which saw them cannot take with it: no other software has one


def unseen_runs(study: Study, compared: Sequence[ComparedRun]) -> list[UnseenRun]:
    """Every timed, healthy run of a study from both sides; what no left-out constant touches is predicted once."""
    timed = [one for one in compared if one.time is not None and healthy(one.row)]
    sources = [source_of(study.family, study.name, one.row) for one in timed]
    without: dict[int, float | None] = {at: log_ratio(one) for at, one in enumerate(timed)}
    for source in dict.fromkeys(sources):
        places = [at for at, own in enumerate(sources) if own == source and _touched(timed[at], source)]
        predictor = predictor_without(source, chosen_again().get(source, {}))
        again = compare([timed[at].row for at in places], predictor)
        without |= {at: log_ratio(one) if one.time else None for at, one in zip(places, again, strict=True)}
    return [
        UnseenRun(study.name, source, one.row.trainer, log_ratio(one), unseen, bool(one.inside))
        for at, (source, one) in enumerate(zip(sources, timed, strict=True))
        if (unseen := without[at]) is not None  # refused without its source: there is nothing to subtract
    ]


def _touched(one: ComparedRun, source: str) -> bool:
    device = catalog.cluster(one.row.cluster).device
    return is_touched(one.row, device.name, device.architecture, source)


def unseen_scores(runs: Sequence[UnseenRun]) -> UnseenScores:
    """The score of all runs, and by study, trainer and source."""

    def by(key: Callable[[UnseenRun], str]) -> tuple[UnseenScore, ...]:
        groups: dict[str, list[UnseenRun]] = {}
        for run in runs:
            groups.setdefault(key(run), []).append(run)
        return tuple(_score(name, own) for name, own in groups.items())

    return UnseenScores(
        all=_score("all", runs) if runs else None,
        studies=by(lambda run: run.study),
        trainers=tuple(sorted(by(lambda run: run.trainer), key=lambda one: one.name)),
        sources=tuple(sorted(by(lambda run: run.source), key=lambda one: one.name)),
        constants=len(in_view()),
        staying=len({slot for run in runs for slot in staying(run.source, chosen_again().get(run.source, {}))}),
    )


def _score(name: str, runs: Sequence[UnseenRun]) -> UnseenScore:
    sources: dict[str, list[UnseenRun]] = {}
    for run in runs:
        sources.setdefault(run.source, []).append(run)
    groups = list(sources.values())
    anchored = [error for own in groups if (error := _after_one(own)) is not None]
    return UnseenScore(
        name=name,
        sources=len(groups),
        runs=len(runs),
        seen=_macro(groups, lambda run: abs(_error(run.seen))),
        unseen=_macro(groups, lambda run: abs(_error(run.unseen))),
        anchored=statistics.fmean(anchored) if anchored else None,
        bias=statistics.fmean(statistics.median(_error(run.unseen) for run in own) for own in groups),
        inside=sum(run.inside for run in runs) / len(runs),
    )


def _macro(groups: Iterable[Sequence[UnseenRun]], value: Callable[[UnseenRun], float]) -> float:
    return statistics.fmean(statistics.fmean(map(value, own)) for own in groups)


def _after_one(runs: Sequence[UnseenRun]) -> float | None:
    """The mean error of a source's other runs after one of the same trainer, drawn by seed, corrected them all."""
    cells: dict[str, list[float]] = {}
    for run in runs:
        cells.setdefault(run.trainer, []).append(run.unseen)
    cells = {name: cell for name, cell in cells.items() if len(cell) > 1}
    if not cells:
        return None
    drawn = random.Random(1)
    tried: list[float] = []
    for _ in range(DRAWS):
        errors: list[float] = []
        for cell in cells.values():
            anchor = drawn.randrange(len(cell))
            errors += [abs(_error(log - cell[anchor])) for at, log in enumerate(cell) if at != anchor]
        tried.append(statistics.fmean(errors))
    return statistics.median(tried)


def _error(log: float) -> float:
    """Of the measured value."""
    return math.exp(-log) - 1
