"""What charts are drawn on: a field with two axes, or rows along one. Places are given as values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from foretell.report import svg
from foretell.report.svg import BOTTOM, LEFT, RIGHT, TOP, WIDTH, Chart, Scale, Shown


class PlotAxis(NamedTuple):
    """What one axis shows, from where to where."""

    name: str
    low: float
    high: float
    show: Shown
    logarithmic: bool = False
    unit: float = 1.0  # ticks are round numbers of these
    at: Sequence[float] = ()  # places of ticks, if not round values

    def scale(self, start: float, end: float) -> Scale:
        return Scale(self.low, self.high, start, end, self.logarithmic, self.unit)


def or_zero(show: Shown) -> Shown:
    """The same, but nothing needs no unit."""
    return lambda value: show(value) if value else "0"


def by_factors(
    name: str,
    values: Iterable[float],
    show: Shown,
    room: float = 0.06,
    at: Sequence[float] = (),
    unit: float = 1.0,
) -> PlotAxis:
    """A logarithmic axis that has room for these values."""
    own = list(values)
    return PlotAxis(name, *svg.padded(min(own), max(own), room), show, logarithmic=True, unit=unit, at=at)


class Plot:
    """A drawing under way."""

    def __init__(self, x: Scale, height: float) -> None:
        self.x, self.height = x, height
        self._drawn: list[str] = []

    def draw(self, *drawn: str, tip: str = "") -> None:
        """Elements that belong together; with a tip, they tell it when they are pointed at."""
        self._drawn.append(svg.mark("".join(drawn), tip) if tip else "".join(drawn))

    def chart(
        self,
        name: str,
        title: str,
        told: str,
        columns: tuple[str, ...],
        rows: Iterable[tuple[str, ...]],
        legend: Iterable[tuple[int, str]] = (),
    ) -> Chart:
        """What was drawn, with what goes with it."""
        body = "".join(self._drawn)
        return Chart(name, title, told, body, int(self.height), columns, tuple(rows), tuple(legend))


class Field(Plot):
    """Two axes, one across and one up."""

    def __init__(self, height: int, across: PlotAxis, up: PlotAxis) -> None:
        super().__init__(across.scale(LEFT, WIDTH - RIGHT), height)
        self.y = up.scale(height - BOTTOM, TOP)
        self.draw(svg.frame(self.x, self.y, across.name, up.name, across.show, up.show, across.at))

    def dot(self, x: float, y: float, radius: float, kind: str, tip: str) -> None:
        self.draw(svg.circle(self.x(x), self.y(y), radius, kind), tip=tip)

    def path(self, points: Iterable[tuple[float, float]], kind: str, tip: str = "") -> None:
        self.draw(svg.path([(self.x(x), self.y(y)) for x, y in points], kind), tip=tip)

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
        return svg.line(self.x(x1), self.y(y1), self.x(x2), self.y(y2), kind)

    def box(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
        """A rectangle from one height down to another."""
        x, y = self.x(x1), self.y(y1)
        return svg.rectangle(x, y, self.x(x2) - x, self.y(y2) - y, kind)

    def limit(self, value: float, said: str) -> None:
        """A value that is not to be passed, or is to be reached."""
        self.draw(self.line(self.x.low, value, self.x.high, value, "limit"))
        self.draw(svg.text(self.x.end, self.y(value) - 5, said, "end", "tick"))


class BarRows(Plot):
    """Bars under each other along one axis, which has a grid."""

    def __init__(self, count: int, tall: float, axis: PlotAxis, left: float = LEFT, ticks: int = 6) -> None:
        self.left, self.tall, self.bottom = left, tall, TOP + count * tall
        super().__init__(axis.scale(left, WIDTH - RIGHT), self.bottom + (44 if axis.name else 26))
        self.draw(
            svg.text((left + WIDTH - RIGHT) / 2, self.bottom + 34, axis.name, "middle", "name") if axis.name else ""
        )
        for value in self.x.ticks(ticks):
            side = "middle" if self.x(value) < WIDTH - 1.5 * RIGHT else "end"  # or the edge cuts the last one
            self.draw(svg.line(self.x(value), TOP, self.x(value), self.bottom, "grid"))
            self.draw(svg.text(self.x(value), self.bottom + 16, axis.show(value), side, "tick"))

    def top(self, at: int) -> float:
        """Where a row begins."""
        return TOP + at * self.tall

    def bar(self, low: float, high: float, y: float, height: float, kind: str) -> str:
        return svg.rectangle(self.x(low), y, self.x(high) - self.x(low), height, kind)

    def label(self, y: float, name: str, kind: str = "tick") -> None:
        """The name of a row, before it."""
        self.draw(svg.text(self.left - 8, y, name, "end", kind))
