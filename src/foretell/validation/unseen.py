"""The score: how far predictions are on sources that no constant was chosen on, by study and by trainer.

Four figures for the same runs: with the constants that ship, with those chosen again without the run and others of its
source (`rows_left_out`), with those that are left when the source was never seen (`left_out`), and with the latter
after one run of the source corrected all others. Every source has the same weight, however many runs it has. Runs that
met a fault of their cluster are left out.
"""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from foretell.hardware import catalog
from foretell.oracle.bands import bands
from foretell.oracle.carried import EffectSpread, RunTraits, SeenRun, axes_of, seconds_of, traits_of
from foretell.oracle.posterior import Posterior
from foretell.oracle.predict import Prediction
from foretell.plan.policies.precision import Precision
from foretell.validation.carried import drawn_pairs, learnt_spread
from foretell.validation.evaluate import ComparedPrediction, ComparedRun, EitherPrediction
from foretell.validation.in_view import in_view, staying
from foretell.validation.kinds import KINDS, KindScore, kind_score, kinds_of
from foretell.validation.left_out import chosen_again, log_ratio
from foretell.validation.sides import Sides
from foretell.validation.sources import healthy, source_of
from foretell.validation.study import Study
from foretell.validation.widths import LEAST_SOURCES, much_of

DRAWS: Final = 21
"""Anchors that are drawn of each source and trainer; the middle of what they leave is told."""


class UnseenRun(NamedTuple):
    """One run: logarithms of measured over predicted, with its source in view, without it, and without some of it."""

    study: str
    source: str
    trainer: str
    seen: float
    unseen: float
    fold: float  # without the run itself and the others of its fold
    inside: bool  # the interval that ships
    traits: RunTraits  # what it can have in common with another
    seconds: tuple[float, float, float]  # predicted without its source: what computes, messages, the host
    reasons: tuple[str, ...] = ()  # why the prediction could be wrong: words of `bands.REASONS`
    precision: str = ""
    width: float = 0.0  # of its interval without its source, either way, as a logarithm
    kinds: tuple[str, ...] = ()  # that it is of, whatever study it stands in

    @property
    def shares(self) -> tuple[float, float, float]:
        """Of the step."""
        computing, messages, host = (part / sum(self.seconds) for part in self.seconds)
        return computing, messages, host

    @property
    def measured(self) -> SeenRun:
        """As an anchor of others."""
        return SeenRun(self.traits, self.seconds, self.unseen)

    def much(self, reason: str) -> float:
        """How much of a reason applies."""
        return much_of(reason, self.reasons, self.seconds)


class UnseenScore(msgspec.Struct, frozen=True):
    """A study or a trainer: mean absolute errors as fractions, the mean over sources."""

    name: str
    sources: int
    runs: int
    scored: float  # share of the rows that were read which are predicted; of a study, of all that it has
    seen: float  # the source was in view
    rows: float  # its constants were chosen again without some of its rows, and these were predicted
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
    kinds: tuple[KindScore, ...]  # mixtures, long contexts, Blackwell
    constants: int  # that were chosen with scored runs in view
    staying: int  # of them, that a source which saw them cannot take with it: no other software has one


def unseen_runs(study: Study, runs: Iterable[Sides]) -> list[UnseenRun]:
    """Every timed, healthy run of a study that is predicted from all sides."""
    return [
        _from_all_sides(study.name, source_of(study.family, study.name, one.seen.row), *one)
        for one in runs
        if healthy(one.seen.row) and all(side.time for side in one)  # refused without its source: nothing to subtract
    ]


def _from_all_sides(study: str, source: str, one: ComparedRun, without: ComparedRun, fold: ComparedRun) -> UnseenRun:
    assert without.prediction is not None  # it was timed
    low, high = without.prediction.interval
    return UnseenRun(
        study,
        source,
        one.row.trainer,
        log_ratio(one),
        log_ratio(without),
        log_ratio(fold),
        bool(one.inside),
        _traits(one),
        seconds_of(_breakdown(without.prediction)),
        tuple(getattr(_first(without.prediction), "band", ())),
        one.row.plan.policy(Precision).name,
        math.log(high / low) / 2,
        kinds_of(one.row),
    )


def _first(found: ComparedPrediction) -> ComparedPrediction:
    """Of the plans that a run may have been; what is doubted of one is doubted of all."""
    return found.each[0] if isinstance(found, EitherPrediction) else found


def _traits(one: ComparedRun) -> RunTraits:
    if isinstance(one.prediction, Prediction):
        return traits_of(one.prediction)
    row, device = one.row, catalog.cluster(one.row.cluster).device.name
    return RunTraits(row.trainer, device, row.model, row.plan.ranks, (row.id,), axes_of(row.plan))


def _breakdown(found: ComparedPrediction) -> dict[str, float]:
    """Of a plan, or the mean of those that it may have been."""
    if not isinstance(found, EitherPrediction):
        return dict(getattr(found, "breakdown", None) or {"forward": found.step_seconds})
    each = [_breakdown(one) for one in found.each]
    return {part: sum(one.get(part, 0.0) for one in each) / len(each) for one in each for part in one}


class RowCounts(NamedTuple):
    """Rows that were read and those of them that are predicted, by what they are counted under."""

    read: Counter[tuple[str, str]]
    predicted: Counter[tuple[str, str]]

    def share(self, kind: str, name: str) -> float:
        read = self.read[kind, name]
        return self.predicted[kind, name] / read if read else 1.0


def row_counts(done: Iterable[tuple[Study, Sequence[ComparedRun]]]) -> RowCounts:
    """Of each study, trainer and source. Lines that no run could be made of have neither trainer nor source."""
    found = RowCounts(Counter(), Counter())
    for study, compared in done:
        for one in compared:
            source = source_of(study.family, study.name, one.row)
            kinds = (("study", study.name), ("trainer", one.row.trainer), ("source", source), ("all", "all"))
            found.read.update(kinds)
            found.predicted.update(kinds if one.prediction else ())
        for kind in (("study", study.name), ("all", "all")):
            found.read[kind] += len(study.not_scored)
    return found


def unseen_scores(runs: Sequence[UnseenRun], counts: RowCounts) -> UnseenScores:
    """The score of all runs, and by study, trainer and source."""

    spreads = spreads_without(runs)

    def by(kind: str, key: Callable[[UnseenRun], str]) -> tuple[UnseenScore, ...]:
        groups: dict[str, list[UnseenRun]] = {}
        for run in runs:
            groups.setdefault(key(run), []).append(run)
        return tuple(_score(name, own, spreads, counts.share(kind, name)) for name, own in groups.items())

    return UnseenScores(
        all=_score("all", runs, spreads, counts.share("all", "all")) if runs else None,
        studies=by("study", lambda run: run.study),
        trainers=tuple(sorted(by("trainer", lambda run: run.trainer), key=lambda one: one.name)),
        sources=tuple(sorted(by("source", lambda run: run.source), key=lambda one: one.name)),
        kinds=tuple(
            kind_score(name, own)
            for name in KINDS
            if (own := [(run.source, error_of(run.unseen)) for run in runs if name in run.kinds])
        ),
        constants=len(in_view()),
        staying=len({slot for run in runs for slot in staying(run.source, chosen_again().get(run.source, {}))}),
    )


def spreads_without(runs: Sequence[UnseenRun]) -> dict[str, EffectSpread]:
    """How far effects go by each source, learnt from the others; what ships, where they are too few."""
    sources = {run.source for run in runs}
    if len(sources) <= LEAST_SOURCES:
        return dict.fromkeys(sources, bands().carried)
    pairs = drawn_pairs(runs)
    return {source: learnt_spread(pairs.without(source)) for source in sorted(sources)}


def _score(name: str, runs: Sequence[UnseenRun], spreads: Mapping[str, EffectSpread], scored: float) -> UnseenScore:
    sources: dict[str, list[UnseenRun]] = {}
    for run in runs:
        sources.setdefault(run.source, []).append(run)
    groups = list(sources.values())
    anchored = [error for own in groups if (error := _after_one(own, spreads[own[0].source])) is not None]
    return UnseenScore(
        name=name,
        sources=len(groups),
        runs=len(runs),
        scored=scored,
        rows=_macro(groups, lambda run: abs(error_of(run.fold))),
        seen=_macro(groups, lambda run: abs(error_of(run.seen))),
        unseen=_macro(groups, lambda run: abs(error_of(run.unseen))),
        anchored=statistics.fmean(anchored) if anchored else None,
        bias=statistics.fmean(statistics.median(error_of(run.unseen) for run in own) for own in groups),
        inside=sum(run.inside for run in runs) / len(runs),
    )


def _macro(groups: Iterable[Sequence[UnseenRun]], value: Callable[[UnseenRun], float]) -> float:
    return statistics.fmean(statistics.fmean(map(value, own)) for own in groups)


def _after_one(runs: Sequence[UnseenRun], spread: EffectSpread) -> float | None:
    """The mean error of a source's other runs after one of the same trainer, drawn by seed, corrected them all."""
    cells: dict[str, list[UnseenRun]] = {}
    for run in runs:
        cells.setdefault(run.trainer, []).append(run)
    cells = {name: cell for name, cell in cells.items() if len(cell) > 1}
    if not cells:
        return None
    drawn = random.Random(1)
    tried: list[float] = []
    for _ in range(DRAWS):
        errors: list[float] = []
        for cell in cells.values():
            anchor = cell[drawn.randrange(len(cell))]
            known = Posterior([anchor.measured], spread)
            errors += [
                abs(error_of(run.unseen - known.log(run.traits, run.seconds))) for run in cell if run is not anchor
            ]
        tried.append(statistics.fmean(errors))
    return statistics.median(tried)


def error_of(log: float) -> float:
    """Of the measured value."""
    return math.exp(-log) - 1
