"""Lines over an axis: how a loss falls, how delays grow, how seconds and memory go with ranks.

Values are by factors, or from zero; places too, where a panel says which there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from foretell.report import svg
from foretell.report.plot import Field, PlotAxis, by_factors
from foretell.report.svg import COLOURS, WIDTH, Chart, line_kind

HEIGHT = 320


class Curve(NamedTuple):
    """A line with a name; values that are not above zero have no place on it."""

    name: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False

    @property
    def drawn(self) -> list[tuple[float, float]]:
        return [(x, y) for x, y in self.points if y > 0 and math.isfinite(y) and math.isfinite(x)]


class Panel(NamedTuple):
    """Curves that belong together, and what their axes are."""

    name: str  # of its file
    title: str
    across: str
    up: str
    curves: Sequence[Curve]
    at: Sequence[float] = ()  # places that have ticks, by factors; none: places from zero, with round ticks
    linear: bool = False  # values from zero
    show: Callable[[float], str] = "{:.3g}".format
    unit: float = 1.0  # ticks of the values are round numbers of these
    goal: float = 0.0  # a value to reach; 0: none


def colours_of(panels: Sequence[Panel]) -> dict[str, int]:
    """A name has one colour in all panels."""
    names = dict.fromkeys(curve.name for panel in panels for curve in panel.curves)
    return {name: at for at, name in enumerate(names)}


def draw(panel: Panel, colours: Mapping[str, int]) -> Chart:
    """One panel. Where no curve has a point it says so."""
    curves = [curve for curve in panel.curves if curve.drawn]
    seen = [point for curve in curves for point in curve.drawn]
    told = f"{panel.up} over {panel.across}: {_ends(panel, curves) or 'nothing to draw'}"
    if not seen:
        nothing = svg.text(WIDTH / 2, HEIGHT / 2, "nothing to draw", "middle")
        return Chart(panel.name, panel.title, told, nothing, HEIGHT, ("line", panel.across, panel.up))
    plot = Field(HEIGHT, _across(panel, seen), _up(panel, seen))
    if panel.goal:
        plot.limit(panel.goal, f"to reach: {panel.show(panel.goal)}")
    for at, curve in enumerate(curves):
        hidden = any(other.drawn == curve.drawn for other in curves[:at])  # on another: let that one be seen
        kind = line_kind(colours[curve.name], curve.dashed or hidden)
        plot.path(curve.drawn, kind, _last(curve, panel.show))
        for across, up in curve.drawn if panel.at else ():
            tip = f"{_named(curve)}: {panel.show(up)} at {across:g} {panel.across}"
            plot.dot(across, up, 2.5 if curve.dashed else 4.0, f"c{colours[curve.name] % COLOURS} edge", tip)
    return plot.chart(
        name=panel.name,
        title=panel.title,
        told=told,
        columns=("line", panel.across, panel.up),
        rows=((_named(one), f"{x:.4g}", f"{y:.4g}") for one in curves for x, y in _some(one.drawn)),
        legend=dict.fromkeys((colours[curve.name], curve.name) for curve in curves),
    )


def _across(panel: Panel, seen: Sequence[tuple[float, float]]) -> PlotAxis:
    if panel.at:
        return by_factors(panel.across, panel.at, "{:.4g}".format, 0.03, panel.at)
    return PlotAxis(panel.across, 0.0, max(x for x, _ in seen) or 1.0, "{:.4g}".format)


def _up(panel: Panel, seen: Sequence[tuple[float, float]]) -> PlotAxis:
    values = [*(y for _, y in seen), *([panel.goal] if panel.goal else [])]
    if panel.linear:
        return PlotAxis(panel.up, 0.0, 1.05 * max(values), panel.show, unit=panel.unit)
    return by_factors(panel.up, values, panel.show)


def _named(curve: Curve) -> str:
    """The name in a table: a line that is dashed stands for what was predicted, beside one that was measured."""
    return f"{curve.name}, dashed" if curve.dashed else curve.name


def _ends(panel: Panel, curves: Sequence[Curve]) -> str:
    return "; ".join(_last(curve, panel.show) for curve in curves)


def _last(curve: Curve, show: Callable[[float], str]) -> str:
    across, up = curve.drawn[-1]
    return f"{_named(curve)} ends at {show(up)} after {across:.3g}"


ROWS = 12
"""Points of a curve that its table has."""


def _some(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    step = max(1, -(-len(points) // ROWS))
    return points[::step]
