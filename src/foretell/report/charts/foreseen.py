"""Bars of what was measured, each with a mark where it was predicted and the band of the prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from foretell.report import svg
from foretell.report.plot import BarRows, PlotAxis, or_zero
from foretell.report.svg import LETTER, Chart, Scale, Shown

BAR = 16
GAP = 8
BEYOND = 1.5
"""Bands are drawn this many times as far as the longest bar; farther ends are cut."""


class Bar(NamedTuple):
    """One thing that was measured, and what was said of it before; no prediction: 0."""

    name: str
    measured: float
    predicted: float = 0.0
    low: float = 0.0
    high: float = 0.0


def draw(bars: Sequence[Bar], what: str, show: Shown, file: str, title: str, unit: float = 1.0) -> Chart:
    """A row each, the shortest bar first."""
    ordered = sorted(bars, key=lambda one: one.measured)
    left = 16 + LETTER * max(len(one.name) for one in ordered)
    most = max(max(one.measured, one.predicted) for one in ordered)
    end = min(BEYOND * most, max(most, *(one.high for one in ordered)))
    plot = BarRows(len(ordered), BAR + GAP, PlotAxis(what, 0.0, 1.03 * end, or_zero(show), unit=unit), left)
    for at, one in enumerate(ordered):
        y = plot.top(at)
        plot.label(y + BAR - 4, one.name)
        plot.draw(plot.bar(0, one.measured, y, BAR, "c0"), _said(one, plot.x, y), tip=_tip(one, show))
    said = any(one.predicted for one in ordered)
    first = ordered[0]
    return plot.chart(
        name=file,
        title=title,
        told=f"{what}: the least is {show(first.measured)}, {first.name}; the most {show(ordered[-1].measured)}, "
        f"{ordered[-1].name}",
        columns=("", "measured", "predicted", "error"),
        rows=(_row(one, show) for one in ordered),
        legend=((0, "measured"), (1, "predicted, with its band")) if said else (),
    )


def _said(one: Bar, x: Scale, y: float) -> str:
    """Where it was predicted."""
    if not one.predicted:
        return ""
    middle = y + BAR / 2
    low, high = max(x.low, one.low), min(x.high, one.high)
    whisker = svg.line(x(low), middle, x(high), middle, "whisker") if high > low else ""
    return whisker + svg.circle(x(one.predicted), middle, 4.5, "c1 edge")


def _tip(one: Bar, show: Shown) -> str:
    if not one.predicted:
        return f"{one.name}: {show(one.measured)} measured"
    error = one.predicted / one.measured - 1 if one.measured else 0.0
    band = f", between {show(one.low)} and {show(one.high)}" if one.high > one.low else ""
    return f"{one.name}: {show(one.measured)} measured, {show(one.predicted)} predicted ({error:+.0%}){band}"


def _row(one: Bar, show: Shown) -> tuple[str, str, str, str]:
    if not one.predicted or not one.measured:
        return one.name, show(one.measured), "-", "-"
    return one.name, show(one.measured), show(one.predicted), f"{one.predicted / one.measured - 1:+.1%}"
