"""Bands learnt from residuals, and whether they hold for a source of runs that they were not learnt from."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy

from foretell.hardware import catalog
from foretell.oracle.bands import REASONS, Bands
from foretell.oracle.bands import bands as shipped
from foretell.oracle.carried import RunTraits, seconds_of, traits_of
from foretell.oracle.predict import Prediction
from foretell.oracle.similar import SimilarRuns, extent_of, work_of
from foretell.plan.trainer import of_today
from foretell.validation.anchors import AnchorScores, anchor_scores
from foretell.validation.carried import drawn_pairs, learnt_spread
from foretell.validation.evaluate import ComparedRun
from foretell.validation.ratios import MeasuredPair, RatioCoverage, ratio_coverage
from foretell.validation.sources import healthy, source_of, table_of
from foretell.validation.unseen import UnseenRun
from foretell.validation.widths import LEAST_SOURCES, Lesson, learnt_widths, left_out, much_of, quantile

LEAST_TRAINERS: Final = 3
"""From which on one can be left out."""


SCALES: Final = ((1, "1"), (8, "2 to 8"), (64, "9 to 64"), (512, "65 to 512"), (math.inf, "more than 512"))

LEAST_RUNS: Final = 20
"""From which on a share of runs inside says something of a trainer, a kind of plan or a scale."""


class Residual(NamedTuple):
    """One run: why its prediction could be wrong, and how far it was."""

    source: str
    log: float  # of measured over predicted
    reasons: tuple[str, ...]
    group: tuple[str, ...]  # runs of one software on one device
    model: str
    ranks: int
    healthy: bool
    device: str = ""
    trainer: str = ""
    axes: tuple[str, ...] = ()  # with more than one rank
    seconds: tuple[float, float, float] = (1.0, 0.0, 0.0)  # predicted: what computes, messages, the host
    question: tuple[str | float, ...] = ()

    @property
    def traits(self) -> RunTraits:
        kind = tuple(sorted(self.axes)) or ("one device",)
        return RunTraits(self.trainer, self.device, self.model, self.ranks, self.question, kind)

    def much(self, reason: str) -> float:
        """How much of a reason applies."""
        return much_of(reason, self.reasons, self.seconds)

    @property
    def parts(self) -> Iterator[tuple[str, str]]:
        """What it is counted under besides its source."""
        yield "trainer", self.trainer
        yield "plan", " ".join(self.axes) or "one device"
        yield "ranks", next(word for most, word in SCALES if self.ranks <= most)


class HeldOutSource(msgspec.Struct, frozen=True):
    """Runs of one source, tried with what all others taught."""

    runs: int
    inside: float
    band: float  # factor either way, in the middle
    bias: float  # measured over predicted, in the middle


class Coverage(msgspec.Struct, frozen=True):
    """Whether nine of ten runs lie inside, source by source left out."""

    runs: int
    inside: float  # of all runs, those that met a fault of their cluster too
    healthy: float  # of the others
    by_source: float  # mean over sources
    sources: dict[str, HeldOutSource]
    parts: dict[str, dict[str, HeldOutSource]]  # by trainer, kind of plan and ranks, healthy runs
    bands: Bands
    ratios: RatioCoverage | None  # None: pairs of too few sources
    anchors: AnchorScores | None  # None: too few sources have two runs of a trainer


def residuals(family: str, study: str, compared: Iterable[ComparedRun]) -> Iterator[Residual]:
    """What the runs of a study teach."""
    for one in compared:
        found, row = one.prediction, one.row
        if not isinstance(found, Prediction) or not row.step_seconds or row.assumed:
            continue  # what we assumed ourselves teaches nothing
        yield Residual(
            source=source_of(family, study, row),
            log=math.log(row.step_seconds / found.step_seconds),
            reasons=tuple(found.band),
            group=(table_of(family, study, row), row.trainer, found.cluster.split("x")[-1].split(",")[0]),
            device=_device(found.cluster),
            trainer=of_today(row.trainer),
            axes=tuple(dict.fromkeys(axis.word for axis in row.plan.axes if axis.world > 1)),
            model=row.model,
            ranks=found.ranks,
            healthy=healthy(row),
            seconds=seconds_of(found.breakdown),
            question=traits_of(found).question,
        )


@functools.cache
def _device(cluster: str) -> str:
    return catalog.cluster(cluster).device.name


def grouped(found: Iterable[Residual]) -> list[SimilarRuns]:
    """Errors of healthy runs by source, trainer, device, work and extent: what an answer's accuracy rests on."""
    errors: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for one in found:
        if one.healthy:
            key = (one.source, one.trainer, one.device, work_of(one.reasons), extent_of(one.ranks, one.reasons))
            errors[key].append(round(abs(math.exp(-one.log) - 1), 4))
    return [
        SimilarRuns(
            source=source, trainer=trainer, device=device, work=work, extent=extent, errors=tuple(sorted(found))
        )
        for (source, trainer, device, work, extent), found in sorted(errors.items())
    ]


def coverage(
    found: Sequence[Residual], pairs: Sequence[MeasuredPair] = (), unseen: Sequence[UnseenRun] = ()
) -> Coverage:
    """Learn the bands, and try them on each source with the others' lessons; of pairs of plans their ratio.

    `unseen` are the runs as they are predicted without their source: they teach what one says of another.
    """
    lesson = lesson_of(found)
    scores, widths = left_out(lesson)
    learnt = msgspec.structs.replace(learnt_widths(lesson, scores), unseen=_unseen(lesson, found))
    inside = scores <= learnt.stretch
    logs = numpy.array([one.log for one in found])

    def held(own: numpy.ndarray) -> HeldOutSource:
        return HeldOutSource(
            runs=int(own.sum()),
            inside=float(inside[own].mean()),
            band=math.exp(learnt.stretch * float(numpy.median(widths[own]))),
            bias=math.exp(float(numpy.median(logs[own]))),
        )

    names = numpy.array(lesson.source)
    sources = {source: held((names == source) & lesson.healthy) for source in sorted(set(lesson.source))}
    parts: dict[str, dict[str, HeldOutSource]] = {}
    tags = [dict(one.parts) if one.healthy else {} for one in found]
    for kind in dict.fromkeys(kind for one in tags for kind in one):
        for part in sorted({one[kind] for one in tags if one}):
            own = numpy.array([one.get(kind) == part for one in tags])
            if own.sum() >= LEAST_RUNS:
                parts.setdefault(kind, {})[part] = held(own)
    return Coverage(
        runs=len(found),
        inside=float(inside.mean()),
        healthy=float(inside[lesson.healthy].mean()),
        by_source=float(numpy.mean([one.inside for one in sources.values()])),
        sources=sources,
        parts=parts,
        bands=Bands(learnt, learnt_spread(drawn_pairs(unseen)) if unseen else shipped().carried),
        ratios=ratio_coverage(pairs) if len({pair.source for pair in pairs}) >= LEAST_SOURCES else None,
        anchors=anchor_scores(unseen),
    )


def lesson_of(found: Sequence[Residual]) -> Lesson:
    """An example for each run."""
    names = tuple(REASONS)
    reasons = numpy.array([[one.much(name) for name in names] for one in found])
    size = numpy.array([abs(one.log) for one in found])
    truths = numpy.array([one.healthy for one in found])
    software = tuple(one.trainer for one in found) if all(one.trainer for one in found) else ()
    return Lesson(names, reasons, size, [one.source for one in found], truths, numpy.ones(len(size)), software)


def _unseen(lesson: Lesson, found: Sequence[Residual]) -> float:
    """How far widths have to be stretched for nine of ten runs of a trainer that they were not learnt from."""
    trainers = lesson._replace(source=[one.trainer for one in found])
    if len(set(trainers.source)) < LEAST_TRAINERS:
        return 0.0
    scores = left_out(trainers)[0]
    return round(quantile(scores[lesson.healthy], trainers.only(lesson.healthy).weights), 3)
