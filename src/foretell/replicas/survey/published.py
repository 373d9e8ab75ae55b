"""What the survey printed: seconds of epochs, speed-ups, phases, memory (`studies/survey`, with sources)."""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from foretell.errors import BadInput
from foretell.validation.published import studies

FOLDER: Final = studies("survey")

Counts: TypeAlias = dict[int, float]
"""A figure by the number of GPUs."""


class PublishedCurve(NamedTuple):
    """One line of a figure."""

    machine: str
    model: str
    framework: str


class Label(NamedTuple):
    """A speed-up that figure 4 prints: on so many GPUs over one."""

    curve: PublishedCurve
    gpus: int
    speedup: float


class Learnt(NamedTuple):
    """What figure 8 shows of held-out data at an epoch."""

    epoch: float
    minutes: float
    metric: str  # accuracy or perplexity
    value: float


def _lines(name: str) -> Iterator[dict[str, str]]:
    file = FOLDER / name
    if not file.is_file():
        raise BadInput("the survey's numbers are not here", where=str(file), fix="the source tree of foretell")
    with file.open(newline="") as text:
        yield from csv.DictReader(text)


def _curve(line: dict[str, str]) -> PublishedCurve:
    return PublishedCurve(line["machine"], line["model"], line["framework"])


def _curves(name: str, column: str, unit: float) -> dict[PublishedCurve, Counts]:
    found: dict[PublishedCurve, Counts] = {}
    for line in _lines(name):
        if line[column]:
            found.setdefault(_curve(line), {})[int(line["gpus"])] = unit * float(line[column])
    return found


@functools.cache
def epochs() -> dict[PublishedCurve, Counts]:
    """Seconds of an epoch."""
    return _curves("epochs.csv", "seconds", 1.0)


@functools.cache
def memory() -> dict[PublishedCurve, Counts]:
    """Bytes of one GPU."""
    return _curves("memory.csv", "gigabytes", 1e9)


@functools.cache
def iterations() -> dict[PublishedCurve, Counts]:
    """Seconds in which the mini-batch of one GPU is done, by all GPUs together."""
    return _curves("iterations.csv", "total_ms", 1e-3)


@functools.cache
def backward() -> dict[PublishedCurve, Counts]:
    """Seconds of an iteration's backward pass."""
    return _curves("iterations.csv", "backward_ms", 1e-3)


@functools.cache
def both_passes() -> dict[PublishedCurve, Counts]:
    """Seconds of an iteration's two passes; the rest of it is input."""
    return _curves("iterations.csv", "backward_and_forward_ms", 1e-3)


@functools.cache
def learnt() -> dict[PublishedCurve, tuple[Learnt, ...]]:
    """Figure 8, by epochs."""
    found: dict[PublishedCurve, list[Learnt]] = {}
    for one in _lines("curves.csv"):
        look = Learnt(float(one["epoch"]), float(one["minutes"]), one["metric"], float(one["value"]))
        found.setdefault(_curve(one), []).append(look)
    return {curve: tuple(sorted(looks)) for curve, looks in found.items()}


@functools.cache
def labels() -> tuple[Label, ...]:
    """The speed-ups that are printed, and so exact."""
    return tuple(Label(_curve(one), int(one["gpus"]), float(one["speedup"])) for one in _lines("speedups.csv"))
