"""How far widths are stretched for each trainer: a hierarchy from all software over frameworks to versions.

The scores of runs (errors over widths) of a trainer are mixed with those of the software that it is based on, and those
with all runs: `SHARED` sources' worth of them, so that few runs say little and many much. The stretch is what nine of
ten of that mixture stay below. Two other ways were tried on sources left out: trainers beside one another under all
software was no better, and the mean of the logarithms of each source's own stretch was worse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy

from foretell.oracle.evidence import software_levels
from foretell.plan.trainer import trainer

Numbers: TypeAlias = "numpy.ndarray[Any, numpy.dtype[numpy.float64]]"

SHARED: Final = 1.0
"""Sources of a trainer that weigh as much as what is known of the software below it."""

HALF: Final = 8.0
"""Runs of a source and trainer that weigh half of one source."""

GRID: Final = numpy.linspace(0.0, 6.0, 301)
"""Scores at which mixtures are known."""

LEAST: Final = 0.2
"""A stretch that is smaller rests on too few runs."""

SHARE: Final = 0.9


def levels_of(name: str) -> tuple[str, ...]:
    """A trainer and what it is based on, the nearest first; none of a lesson that knows no software."""
    return software_levels(trainer(name)) if name else ()


def stretches(scores: Numbers, sources: Sequence[str], software: Sequence[str]) -> dict[str, float]:
    """By trainer and by the software below them; "" is all of it."""
    cells: dict[tuple[str, str], list[float]] = {}
    for score, source, name in zip(scores.tolist(), sources, software, strict=True):
        cells.setdefault((source, name), []).append(score)
    curves = {cell: _below(numpy.sort(own)) for cell, own in cells.items()}
    above = {name: levels_of(name) for name in sorted(set(software))}
    known: dict[str, Numbers] = {"": _mixed(list(curves.values()))}
    for path in above.values():
        parent = known[""]
        for level in reversed(path):
            if level not in known:
                own = [curve for (_, name), curve in curves.items() if level in above[name]]
                known[level] = _mixed(own, parent)
            parent = known[level]
    return {name: max(LEAST, _quantile(curve)) for name, curve in known.items() if name or len(known) > 1}


def stretch_of(name: str, known: Mapping[str, float]) -> float:
    """Of a trainer, or of the nearest software below it of which runs were measured."""
    return next((known[level] for level in levels_of(name) if level in known), known.get("", 1.0))


def _below(scores: Numbers) -> Numbers:
    """The runs of a source and trainer that lie below each point, by what they weigh; last: all of them."""
    counts = numpy.append(numpy.searchsorted(scores, GRID, side="right"), len(scores))
    return counts / (len(scores) + HALF)


def _mixed(curves: Sequence[Numbers], parent: Numbers | None = None) -> Numbers:
    """Shares below each point, of the runs themselves and of what is known below them."""
    told = numpy.sum(numpy.array(curves), axis=0)
    if parent is not None:
        told = told + SHARED * parent
    return told / told[-1]


def _quantile(curve: Numbers) -> float:
    return float(GRID[min(int(numpy.searchsorted(curve[:-1], SHARE)), len(GRID) - 1)])
