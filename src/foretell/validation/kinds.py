"""Kinds of runs that are asked of together, whatever study they stand in: mixtures, long contexts, Blackwell."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from foretell.hardware import catalog
from foretell.model import zoo
from foretell.validation.study import MeasuredRun

LONG: Final = 32768
"""Tokens of a sequence from which on a context is long here."""


class KindScore(msgspec.Struct, frozen=True):
    """Runs of one kind, each predicted as if its source had never been seen: errors as fractions."""

    name: str
    sources: int
    runs: int
    median: float  # of the absolute errors of all runs
    p90: float  # what nine in ten of them stay under
    by_source: float  # mean absolute error, every source with the same weight
    bias: float  # median of the errors with their sign


def _is_mixture(row: MeasuredRun) -> bool:
    fields: Any = zoo.named(row.model)
    return getattr(fields, "experts", 1) > 1


def _is_long(row: MeasuredRun) -> bool:
    fields: Any = zoo.named(row.model)
    return (row.job.sequence or getattr(fields, "seq", 0)) >= LONG


def _is_blackwell(row: MeasuredRun) -> bool:
    return catalog.cluster(row.cluster).device.architecture.startswith("blackwell")


KINDS: Final[Mapping[str, Callable[[MeasuredRun], bool]]] = {
    "mixtures": _is_mixture,
    f"sequences from {LONG:,}": _is_long,
    "Blackwell": _is_blackwell,
}


def kinds_of(row: MeasuredRun) -> tuple[str, ...]:
    """The kinds that a run is of."""
    return tuple(name for name, belongs in KINDS.items() if belongs(row))


def kind_score(name: str, errors: Iterable[tuple[str, float]]) -> KindScore:
    """The score of some runs by their sources and errors."""
    sources: dict[str, list[float]] = {}
    for source, error in errors:
        sources.setdefault(source, []).append(error)
    sizes = sorted(abs(error) for own in sources.values() for error in own)
    return KindScore(
        name=name,
        sources=len(sources),
        runs=len(sizes),
        median=statistics.median(sizes),
        p90=sizes[min(len(sizes) - 1, int(0.9 * len(sizes)))],
        by_source=statistics.fmean(statistics.fmean(map(abs, own)) for own in sources.values()),
        bias=statistics.median(error for own in sources.values() for error in own),
    )
