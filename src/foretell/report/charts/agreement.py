"""Predictions against measurements: a dot a run, on the diagonal where both agree, with the band of the prediction."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from foretell.report.svg import (
    BOTTOM,
    COLOURS,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Chart,
    Scale,
    Shown,
    circle,
    frame,
    line,
    mark,
    padded,
    text,
)

HEIGHT = 420
FEW = 120
"""Runs up to which each has its own band, and its line in the table."""

NEAR = 1.25
"""The factor of the dashed lines on both sides of the diagonal."""


class Met(NamedTuple):
    """One run: what was foretold of it, between which ends, and what was measured."""

    name: str
    group: str  # runs of one group have one colour
    measured: float
    predicted: float
    low: float = 0.0  # of the band; equal ends: it has none
    high: float = 0.0

    @property
    def error(self) -> float:
        """Predicted less measured, as a share of what was measured."""
        return self.predicted / self.measured - 1


def draw(runs: Sequence[Met], what: str, show: Shown, file: str = "agreement") -> Chart:
    """Measured across, predicted up, both by factors."""
    groups = list(dict.fromkeys(one.group for one in runs))
    every = [value for one in runs for value in (one.measured, one.predicted)]
    low, high = padded(min(every), max(every), 0.04)
    x = Scale(low, high, LEFT, WIDTH - RIGHT, logarithmic=True)
    y = Scale(low, high, HEIGHT - BOTTOM, TOP, logarithmic=True)
    parts = [frame(x, y, f"{what}, measured", f"{what}, predicted", show, show), *_diagonals(x, y)]
    for one in runs:
        parts.append(_dot(one, x, y, groups.index(one.group), show, len(runs) <= FEW))
    near = sum(1 / NEAR <= 1 + one.error <= NEAR for one in runs) / len(runs)
    middle = statistics.median(abs(one.error) for one in runs)
    return Chart(
        name=file,
        title=f"Predicted and measured: {what}",
        told=f"{len(runs):,} runs, median error {middle:.1%}, {near:.0%} of them within a factor of {NEAR:g}",
        body="".join(parts),
        height=HEIGHT,
        columns=("run", "measured", "predicted", "error"),
        rows=tuple(_row(one, show) for one in runs) if len(runs) <= FEW else (),
        legend=tuple((at, name) for at, name in enumerate(groups)) if len(groups) > 1 else (),
    )


def _diagonals(x: Scale, y: Scale) -> list[str]:
    """Where both are equal, and where one is so much larger."""
    low, high = x.low, x.high
    near = [
        line(x(low * NEAR), y(low), x(high), y(high / NEAR), "axis dashed"),
        line(x(low), y(low * NEAR), x(high / NEAR), y(high), "axis dashed"),
    ]
    told = text(x(high) - 6, y(high / NEAR) + 16, f"x {1 / NEAR:g}", "end", "small")
    return [*near, line(x(low), y(low), x(high), y(high), "axis"), told]


def _dot(one: Met, x: Scale, y: Scale, colour: int, show: Shown, alone: bool) -> str:
    tip = f"{one.name}: {show(one.predicted)} predicted, {show(one.measured)} measured, {one.error:+.1%}"
    kind = f"c{colour % COLOURS}"
    if not alone:
        return mark(circle(x(one.measured), y(one.predicted), 3, f"{kind} faint"), tip)
    dot = circle(x(one.measured), y(one.predicted), 4, f"{kind} edge")
    if one.high > one.low:
        ends = (y(max(one.low, y.low)), y(min(one.high, y.high)))  # a band may leave the frame
        dot = line(x(one.measured), ends[0], x(one.measured), ends[1], "whisker faint") + dot
        tip += f", between {show(one.low)} and {show(one.high)} expected"
    return mark(dot, tip)


def _row(one: Met, show: Shown) -> tuple[str, str, str, str]:
    return (one.name, show(one.measured), show(one.predicted), f"{one.error:+.1%}")
