"""Widths of intervals learnt from errors, reason by reason, and tried on sources that they were not learnt from.

Widths are those that nine of ten errors stay below (quantile regression, none below zero); then every source is left
out in turn, and all widths are stretched until nine of ten of what was left out lie inside (see `oracle/bands.py`).
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy

from foretell.oracle.bands import ALWAYS, Widths
from foretell.oracle.carried import MESSAGES
from foretell.validation.software_widths import stretch_of, stretches

Numbers: TypeAlias = "numpy.ndarray[Any, numpy.dtype[numpy.float64]]"

SHARE: Final = 0.9
"""Of runs that shall lie inside."""

LEAST: Final = 0.02
"""Width that is left always: no answer is exact."""

LEAST_SOURCES: Final = 3
"""Of which one can be left out."""

FINEST: Final = 1e-3
"""Steps of the search for widths end here."""


class Lesson(NamedTuple):
    """Examples to learn widths from: one row for each run or pair of runs."""

    names: tuple[str, ...]
    reasons: Numbers  # 0 or 1
    size: Numbers  # of the error, as a logarithm
    source: list[str]
    healthy: Any  # truths
    worth: Numbers  # of an example beside others of its source
    software: tuple[str, ...] = ()  # trainers, where they have stretches of their own

    def only(self, chosen: Any) -> Lesson:
        kept = [source for source, wanted in zip(self.source, chosen, strict=True) if wanted]
        rest = self.reasons[chosen], self.size[chosen], kept, self.healthy[chosen], self.worth[chosen]
        software = tuple(name for name, wanted in zip(self.software, chosen, strict=bool(self.software)) if wanted)
        return Lesson(self.names, *rest, software)

    def taught(self) -> tuple[Numbers, dict[str, float]]:
        """Widths by reason, and stretches by software."""
        widths = fitted(self)
        scores = self.size / (self.reasons @ widths)
        return widths, stretches(scores, self.source, self.software) if self.software else {}

    def widths_by(self, widths: Numbers, software: Mapping[str, float]) -> Numbers:
        """Of each example."""
        found = self.reasons @ widths
        if not self.software:
            return found
        each = {name: stretch_of(name, software) for name in set(self.software)}
        return found * numpy.array([each[name] for name in self.software])

    @property
    def weights(self) -> Numbers:
        """Many runs of one source tell less than as many of several."""
        worth: dict[str, float] = defaultdict(float)
        for source, own in zip(self.source, self.worth.tolist(), strict=True):
            worth[source] += own
        return self.worth * numpy.array([worth[source] ** -0.5 for source in self.source])


def left_out(lesson: Lesson) -> tuple[Numbers, Numbers]:
    """Of each example its error over the width that the other sources taught, and that width."""
    scores, widths = numpy.zeros(len(lesson.size)), numpy.zeros(len(lesson.size))
    for source in sorted(set(lesson.source)):
        own = numpy.array([other == source for other in lesson.source])
        widths[own] = lesson.only(own).widths_by(*lesson.only(~own & lesson.healthy).taught())
        scores[own] = lesson.size[own] / widths[own]
    return scores, widths


def left_out_with(lesson: Lesson) -> tuple[Widths, Numbers]:
    """Widths that all sources teach, and of each example the one that the others taught, stretched like them."""
    scores, widths = left_out(lesson)
    learnt = learnt_widths(lesson, scores)
    return learnt, learnt.stretch * widths


def much_of(reason: str, of_run: Collection[str], seconds: Sequence[float]) -> float:
    """How much of a reason applies: all or nothing, or of messages between convolutions their share of the step."""
    if reason == "messages":
        return seconds[MESSAGES] / sum(seconds) if "convolutions" in of_run else 0.0
    return float(reason in of_run)


def allowed(lesson: Lesson) -> Numbers:
    """Of each example the width that the other sources alone taught, stretched as they ask for among themselves."""
    found = numpy.zeros(len(lesson.size))
    for source in sorted(set(lesson.source)):
        own = numpy.array([other == source for other in lesson.source])
        others = lesson.only(~own & lesson.healthy)
        taught = learnt_widths(others, left_out(others)[0])
        found[own] = taught.stretch * (lesson.reasons[own] @ numpy.array(list(taught.widths.values())))
    return found


def learnt_widths(lesson: Lesson, scores: Numbers) -> Widths:
    """What all sources teach together, stretched by how the left-out ones scored."""
    healthy = lesson.only(lesson.healthy)
    stretch = quantile(scores[lesson.healthy], healthy.weights)
    widths, software = healthy.taught()
    return Widths(
        widths={name: round(float(width), 4) for name, width in zip(lesson.names, widths, strict=True)},
        stretch=round(stretch, 3),
        runs=len(healthy.size),
        sources=len(set(healthy.source)),
        inside=round(float((scores[lesson.healthy] <= stretch).mean()), 3),
        software={name: round(own, 3) for name, own in software.items()},
    )


def fitted(lesson: Lesson) -> Numbers:
    """Widths that nine of ten errors stay below, none negative: the least pinball loss.

    One width at a time, or one for another: where two reasons nearly always come together, changing either alone only
    makes it worse long before the least loss.
    """
    weights = lesson.weights
    known = lesson.reasons.any(axis=0)
    found = numpy.where(known, 0.1, 0.0)  # what no example has teaches nothing
    least = numpy.zeros(len(found))
    least[lesson.names.index(ALWAYS)] = LEAST

    def loss(widths: Numbers) -> float:
        over = lesson.size - lesson.reasons @ widths
        return float((weights * numpy.maximum(SHARE * over, (SHARE - 1) * over)).sum())

    ways = list(_ways(known))
    best, step = loss(found), 0.1
    while step > FINEST:
        better = False
        for way in ways:
            tried = numpy.maximum(least, found + step * way)
            now = loss(tried)
            if now < best - 1e-12:
                best, found, better = now, tried, True
        step = step if better else step / 2
    return found


def _ways(known: Any) -> Iterator[Numbers]:
    """Each width that is learnt up or down, and each up as another one goes down."""
    one = numpy.eye(len(known))[numpy.flatnonzero(known)]
    yield from (sign * own for own in one for sign in (1.0, -1.0))
    yield from (own - other for own, other in itertools.permutations(one, 2))


def quantile(scores: Numbers, weights: Numbers) -> float:
    """The score that a share of the weight lies below."""
    ordered = sorted(zip(scores.tolist(), weights.tolist(), strict=True))
    wanted = SHARE * math.fsum(weight for _, weight in ordered)
    reached = 0.0
    for score, weight in ordered:
        reached += weight
        if reached >= wanted:
            return score
    return ordered[-1][0]
