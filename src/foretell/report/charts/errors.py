"""How far predictions were from measured runs: each source from its best tenth to its worst, with the middle."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from foretell.report import svg
from foretell.report.plot import BarRows, PlotAxis
from foretell.report.svg import LEFT, Chart

ROW = 20
WIDE = LEFT + 70
FARTHEST = 1.0
"""Errors above this are drawn at the edge."""


def draw(errors: Mapping[str, Sequence[float]]) -> Chart:
    """A row a source, the one with most runs first."""
    names = sorted(errors, key=lambda name: -len(errors[name]))
    plot = BarRows(
        len(names), ROW, PlotAxis("error of the predicted step", 0.0, FARTHEST, "{:.0%}".format), WIDE, ticks=5
    )
    rows: list[tuple[str, ...]] = []
    for at, name in enumerate(names):
        own = sorted(errors[name])
        low, high, middle = _share(own, 0.1), _share(own, 0.9), statistics.median(own)
        y = plot.top(at) + ROW / 2
        plot.label(y + 4, name)
        plot.draw(
            plot.bar(low, min(high, FARTHEST), y - 5, 10, "c0 faint"),
            svg.circle(plot.x(min(middle, FARTHEST)), y, 4.5, "c1 edge"),
            tip=f"{name}: {len(own)} runs, median error {middle:.1%}, nine in ten below {high:.0%}",
        )
        rows.append((name, f"{len(own):,}", f"{middle:.1%}", f"{high:.1%}"))
    every = [error for own in errors.values() for error in own]
    return plot.chart(
        name="accuracy",
        title="Predictions against measured runs, by source",
        told=f"{len(every):,} runs, median error {statistics.median(every):.1%}",
        columns=("source", "runs", "median error", "nine in ten below"),
        rows=rows,
        legend=((1, "median"), (0, "from the best tenth to the worst")),
    )


def _share(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
