"""Lines over an axis: how a loss falls, how delays grow, how seconds and memory go with ranks.

Values are by factors, or from zero; places too, where a panel says which there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
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
    circle,
    frame,
    line,
    line_kind,
    mark,
    padded,
    path,
    text,
)

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
    body = _curves(panel, curves, seen, colours) if seen else text(WIDTH / 2, HEIGHT / 2, "nothing to draw", "middle")
    return Chart(
        name=panel.name,
        title=panel.title,
        told=f"{panel.up} over {panel.across}: {_ends(panel, curves) or 'nothing to draw'}",
        body=body,
        height=HEIGHT,
        columns=("line", panel.across, panel.up),
        rows=tuple((_named(one), f"{x:.4g}", f"{y:.4g}") for one in curves for x, y in _some(one.drawn)),
        legend=tuple(dict.fromkeys((colours[curve.name], curve.name) for curve in curves)),
    )


def _curves(
    panel: Panel, curves: Sequence[Curve], seen: Sequence[tuple[float, float]], colours: Mapping[str, int]
) -> str:
    x, y = _across(panel, seen), _up(panel, [*seen, *([(0.0, panel.goal)] if panel.goal else [])])
    parts = [frame(x, y, panel.across, panel.up, lambda at: f"{at:.4g}", panel.show, panel.at)]
    if panel.goal:
        parts.append(line(x.start, y(panel.goal), x.end, y(panel.goal), "limit"))
        parts.append(text(x.end, y(panel.goal) - 5, f"to reach: {panel.show(panel.goal)}", "end", "tick"))
    for at, curve in enumerate(curves):
        hidden = any(other.drawn == curve.drawn for other in curves[:at])  # on another: let that one be seen
        kind = line_kind(colours[curve.name], curve.dashed or hidden)
        parts.append(mark(path([(x(across), y(up)) for across, up in curve.drawn], kind), _last(curve, panel.show)))
        if panel.at:
            parts += [_place(panel, curve, x(across), y(up), across, up, colours) for across, up in curve.drawn]
    return "".join(parts)


def _across(panel: Panel, seen: Sequence[tuple[float, float]]) -> Scale:
    if panel.at:
        return Scale(*padded(min(panel.at), max(panel.at), 0.03), LEFT, WIDTH - RIGHT, logarithmic=True)
    return Scale(0.0, max(x for x, _ in seen) or 1.0, LEFT, WIDTH - RIGHT)


def _up(panel: Panel, seen: Sequence[tuple[float, float]]) -> Scale:
    low, high = min(y for _, y in seen), max(y for _, y in seen)
    if panel.linear:
        return Scale(0.0, 1.05 * high, HEIGHT - BOTTOM, TOP, unit=panel.unit)
    return Scale(*padded(low, high), HEIGHT - BOTTOM, TOP, logarithmic=True)


def _place(panel: Panel, curve: Curve, x: float, y: float, across: float, up: float, colours: Mapping[str, int]) -> str:
    """One value that can be pointed at."""
    tip = f"{_named(curve)}: {panel.show(up)} at {across:g} {panel.across}"
    return mark(circle(x, y, 2.5 if curve.dashed else 4.0, f"c{colours[curve.name] % COLOURS} edge"), tip)


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
