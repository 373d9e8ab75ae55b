"""Bands learnt from residuals, and whether they hold for a source of runs that they were not learnt from."""

from __future__ import annotations

import functools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import numpy

from foretell.hardware import catalog
from foretell.oracle.bands import ALWAYS, ANCHORED, REASONS, Bands, Widths
from foretell.oracle.predict import Prediction
from foretell.oracle.similar import SimilarRuns, extent_of, work_of
from foretell.validation.evaluate import ComparedRun

Numbers: TypeAlias = "numpy.ndarray[Any, numpy.dtype[numpy.float64]]"

SHARE: Final = 0.9
"""Of runs that shall lie inside."""

LEAST: Final = 0.02
"""Width that is left always: no answer is exact."""

FINEST: Final = 1e-3
"""Steps of the search for widths end here."""

PARTNERS: Final = 3
"""Other runs of the same group that each run is paired with, as if they were its anchor."""

LEAST_TRAINERS: Final = 3
"""From which on one can be left out."""

FAULT: Final = "cluster fault"
"""Runs that met a fault of their cluster teach nothing; they are counted apart."""

TOGETHER: Final = {
    **dict.fromkeys(("pdlf", "pdll", "pdlt"), "pdl"),
    **dict.fromkeys(("vtrain_single", "vtrain_multi"), "vtrain"),
    **dict.fromkeys(("measured", "second", "unseen", "compiled"), "h200_steps"),
}
"""Tables of one paper, or runs of one machine and software: left out together."""

BY_SOURCE: Final = ("llm", "cnn")
"""Families whose files collect runs of many sources, which their first subset names."""


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
    bands: Bands


def residuals(family: str, study: str, compared: Iterable[ComparedRun]) -> Iterator[Residual]:
    """What the runs of a study teach."""
    for one in compared:
        found, row = one.prediction, one.row
        if not isinstance(found, Prediction) or not row.step_seconds:
            continue
        source = row.subsets[0] if family in BY_SOURCE and row.subsets else study
        yield Residual(
            source=TOGETHER.get(source, source),
            log=math.log(row.step_seconds / found.step_seconds),
            reasons=tuple(found.band),
            group=(source, row.trainer, found.cluster.split("x")[-1].split(",")[0]),
            device=_device(found.cluster),
            trainer=row.trainer,
            model=row.model,
            ranks=found.ranks,
            healthy=FAULT not in row.subsets,
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


class Lesson(NamedTuple):
    """Examples to learn widths from: one row for each run or pair of runs."""

    names: tuple[str, ...]
    reasons: Numbers  # 0 or 1
    size: Numbers  # of the error, as a logarithm
    source: list[str]
    healthy: Any  # truths

    def only(self, chosen: Any) -> Lesson:
        kept = [source for source, wanted in zip(self.source, chosen, strict=True) if wanted]
        return Lesson(self.names, self.reasons[chosen], self.size[chosen], kept, self.healthy[chosen])

    @property
    def weights(self) -> Numbers:
        """Many runs of one source tell less than as many of several."""
        counts = Counter(self.source)
        return numpy.array([counts[source] ** -0.5 for source in self.source])


def coverage(found: Sequence[Residual]) -> Coverage:
    """Learn the bands, and try them on each source with the others' lessons."""
    lesson = lesson_of(found)
    scores, widths = _left_out(lesson)
    learnt = msgspec.structs.replace(_learnt(lesson, scores), unseen=_unseen(lesson, found))
    anchors = _anchors(found)
    anchored = _learnt(anchors, _left_out(anchors)[0])
    inside = scores <= learnt.stretch
    logs = numpy.array([one.log for one in found])
    sources: dict[str, HeldOutSource] = {}
    for source in sorted(set(lesson.source)):
        own = numpy.array([other == source for other in lesson.source]) & lesson.healthy
        sources[source] = HeldOutSource(
            runs=int(own.sum()),
            inside=float(inside[own].mean()),
            band=math.exp(learnt.stretch * float(numpy.median(widths[own]))),
            bias=math.exp(float(numpy.median(logs[own]))),
        )
    return Coverage(
        runs=len(found),
        inside=float(inside.mean()),
        healthy=float(inside[lesson.healthy].mean()),
        by_source=float(numpy.mean([one.inside for one in sources.values()])),
        sources=sources,
        bands=Bands(learnt, anchored),
    )


def lesson_of(found: Sequence[Residual]) -> Lesson:
    """An example for each run."""
    names = tuple(REASONS)
    reasons = numpy.array([[float(name in one.reasons) for name in names] for one in found])
    size = numpy.array([abs(one.log) for one in found])
    return Lesson(names, reasons, size, [one.source for one in found], numpy.array([one.healthy for one in found]))


def _anchors(found: Sequence[Residual]) -> Lesson:
    """Pairs of runs of one software on one device: one is predicted, the other was measured before."""
    groups: dict[tuple[str, ...], list[Residual]] = defaultdict(list)
    for one in found:
        if one.healthy:
            groups[one.group].append(one)
    names = tuple(ANCHORED)
    reasons: list[list[float]] = []
    sizes: list[float] = []
    sources: list[str] = []
    for own in groups.values():
        for at, one in enumerate(own):
            for step in range(1, min(PARTNERS, len(own) - 1) + 1):
                other = own[(at + step * max(1, len(own) // (PARTNERS + 1))) % len(own)]
                if other is one:
                    continue
                differ = {"other model": other.model != one.model, "other ranks": other.ranks != one.ranks}
                reasons.append([float(differ.get(name, name in one.reasons)) for name in names])
                sizes.append(abs(one.log - other.log))
                sources.append(one.source)
    truths = numpy.ones(len(sizes), dtype=bool)
    return Lesson(names, numpy.array(reasons), numpy.array(sizes), sources, truths)


def _left_out(lesson: Lesson) -> tuple[Numbers, Numbers]:
    """Of each example its error over the width that the other sources taught, and that width."""
    scores, widths = numpy.zeros(len(lesson.size)), numpy.zeros(len(lesson.size))
    for source in sorted(set(lesson.source)):
        own = numpy.array([other == source for other in lesson.source])
        taught = fitted(lesson.only(~own & lesson.healthy))
        widths[own] = lesson.reasons[own] @ taught
        scores[own] = lesson.size[own] / widths[own]
    return scores, widths


def _unseen(lesson: Lesson, found: Sequence[Residual]) -> float:
    """How far widths have to be stretched for nine of ten runs of a trainer that they were not learnt from."""
    trainers = lesson._replace(source=[one.trainer for one in found])
    if len(set(trainers.source)) < LEAST_TRAINERS:
        return 0.0
    scores = _left_out(trainers)[0]
    return round(_quantile(scores[lesson.healthy], trainers.only(lesson.healthy).weights), 3)


def _learnt(lesson: Lesson, scores: Numbers) -> Widths:
    healthy = lesson.only(lesson.healthy)
    stretch = _quantile(scores[lesson.healthy], healthy.weights)
    return Widths(
        widths={name: round(float(width), 4) for name, width in zip(lesson.names, fitted(healthy), strict=True)},
        stretch=round(stretch, 3),
        runs=len(healthy.size),
        sources=len(set(healthy.source)),
        inside=round(float((scores[lesson.healthy] <= stretch).mean()), 3),
    )


def fitted(lesson: Lesson) -> Numbers:
    """Widths that nine of ten errors stay below, none negative: the least pinball loss, one width at a time."""
    weights = lesson.weights
    first = lesson.names.index(ALWAYS)
    found = numpy.full(len(lesson.names), 0.1)

    def loss(widths: Numbers) -> float:
        over = lesson.size - lesson.reasons @ widths
        return float((weights * numpy.maximum(SHARE * over, (SHARE - 1) * over)).sum())

    best, step = loss(found), 0.1
    while step > FINEST:
        better = False
        for at in range(len(found)):
            for change in (step, -step):
                tried = found.copy()
                tried[at] = max(LEAST if at == first else 0.0, tried[at] + change)
                now = loss(tried)
                if now < best - 1e-12:
                    best, found, better = now, tried, True
        step = step if better else step / 2
    return found


def _quantile(scores: Numbers, weights: Numbers) -> float:
    """The score that a share of the weight lies below."""
    ordered = sorted(zip(scores.tolist(), weights.tolist(), strict=True))
    wanted = SHARE * math.fsum(weight for _, weight in ordered)
    reached = 0.0
    for score, weight in ordered:
        reached += weight
        if reached >= wanted:
            return score
    return ordered[-1][0]
