"""How far predictions of runs like this one were from what was measured: one line on every answer.

`similar.json` has a line for each source, trainer, device and extent of published runs: how far each was.
`foretell validate --coverage --learn` writes it with the bands. Runs are alike that have the
most in common with the question: trainer, device, convolutions or not, one rank, one node or several.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

FILE: Final = Path(__file__).with_name("similar.json")

ENOUGH: Final = 5
"""Runs from which a middle is told."""

ALIKE: Final = (
    ("work", "trainer", "device", "extent"),
    ("work", "trainer", "device"),
    ("work", "device", "extent"),
    ("work", "trainer"),
    ("work", "device"),
    ("work",),
)
"""What a question and measured runs can have in common, the most first."""


class SimilarRuns(msgspec.Struct, frozen=True, kw_only=True):
    """Measured runs of one kind: errors are |predicted - measured| / measured."""

    source: str
    trainer: str
    device: str
    work: str  # convolutions, or products of matrices
    extent: str  # one rank, one node, several nodes
    errors: tuple[float, ...]


class SimilarAccuracy(msgspec.Struct, frozen=True, kw_only=True):
    """How far predictions of the most similar runs were."""

    runs: int
    median_error: float
    study: str  # that most of them are of
    alike: tuple[str, ...]  # what they have in common with the question

    def __str__(self) -> str:
        common = ", ".join(self.alike)
        return f"{self.median_error:.1%} median error of {self.runs:,} measured runs ({common}), most of {self.study}"


def extent_of(ranks: int, reasons: Iterable[str]) -> str:
    """How far a plan reaches."""
    if "nodes" in reasons:
        return "several nodes"
    return "one rank" if ranks == 1 else "one node"


def work_of(reasons: Iterable[str]) -> str:
    return "convolutions" if "convolutions" in reasons else "matrix products"


@functools.cache
def groups() -> tuple[SimilarRuns, ...]:
    """What ships."""
    return msgspec.json.decode(FILE.read_bytes(), type=tuple[SimilarRuns, ...])


def accuracy(device: str, trainer: str, ranks: int, reasons: Iterable[str]) -> SimilarAccuracy | None:
    """Of the runs most like this one; None where none are like it at all."""
    told = tuple(reasons)
    question = {
        "work": work_of(told),
        "trainer": trainer,
        "device": device,
        "extent": extent_of(ranks, told),
    }
    for common in ALIKE:
        found = [one for one in groups() if all(getattr(one, name) == question[name] for name in common)]
        if sum(len(one.errors) for one in found) >= ENOUGH:
            return _told(found, tuple(question[name] for name in common))
    return None


def _told(found: Sequence[SimilarRuns], alike: tuple[str, ...]) -> SimilarAccuracy:
    errors = [error for one in found for error in one.errors]
    sizes: dict[str, int] = {}
    for one in found:
        sizes[one.source] = sizes.get(one.source, 0) + len(one.errors)
    study = max(sizes, key=lambda name: sizes[name])
    return SimilarAccuracy(runs=len(errors), median_error=statistics.median(errors), study=study, alike=alike)
