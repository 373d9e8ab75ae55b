"""Predictions against measurements: a dot a run, on the diagonal where both agree, with the band of the prediction."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from foretell.report import svg
from foretell.report.plot import Field, by_factors
from foretell.report.svg import COLOURS, Chart, Shown, byte_unit
from foretell.units import show_bytes

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
    unit = byte_unit(max(every)) if show is show_bytes else 1.0
    across, up = (by_factors(f"{what}, {how}", every, show, 0.04, unit=unit) for how in ("measured", "predicted"))
    plot = Field(HEIGHT, across, up)
    _diagonals(plot)
    for one in runs:
        _dot(plot, one, groups.index(one.group), show, len(runs) <= FEW)
    near = sum(1 / NEAR <= 1 + one.error <= NEAR for one in runs) / len(runs)
    middle = statistics.median(abs(one.error) for one in runs)
    return plot.chart(
        name=file,
        title=f"Predicted and measured: {what}",
        told=f"{len(runs):,} runs, median error {middle:.1%}, {near:.0%} of them within a factor of {NEAR:g}",
        columns=("run", "measured", "predicted", "error"),
        rows=(_row(one, show) for one in runs) if len(runs) <= FEW else (),
        legend=enumerate(groups) if len(groups) > 1 else (),
    )


def _diagonals(plot: Field) -> None:
    """Where both are equal, and where one is so much larger."""
    low, high = plot.x.low, plot.x.high
    plot.draw(plot.line(low * NEAR, low, high, high / NEAR, "axis dashed"))
    plot.draw(plot.line(low, low * NEAR, high / NEAR, high, "axis dashed"))
    plot.draw(plot.line(low, low, high, high, "axis"))
    plot.draw(svg.text(plot.x(high) - 6, plot.y(high / NEAR) + 16, f"x {1 / NEAR:g}", "end", "small"))


def _dot(plot: Field, one: Met, colour: int, show: Shown, alone: bool) -> None:
    tip = f"{one.name}: {show(one.predicted)} predicted, {show(one.measured)} measured, {one.error:+.1%}"
    kind = f"c{colour % COLOURS}"
    x, y = plot.x(one.measured), plot.y(one.predicted)
    if not alone:
        plot.draw(svg.circle(x, y, 3, f"{kind} faint"), tip=tip)
        return
    band = ""
    if one.high > one.low:
        ends = max(one.low, plot.y.low), min(one.high, plot.y.high)  # a band may leave the frame
        band = plot.line(one.measured, ends[0], one.measured, ends[1], "whisker faint")
        tip += f", between {show(one.low)} and {show(one.high)} expected"
    plot.draw(band, svg.circle(x, y, 4, f"{kind} edge"), tip=tip)


def _row(one: Met, show: Shown) -> tuple[str, str, str, str]:
    return (one.name, show(one.measured), show(one.predicted), f"{one.error:+.1%}")
