"""Charts as SVG text. Colours are classes, so that a page can be light or dark and a figure for a paper can be printed.

A chart is a `Chart`: what is drawn, in a width of 720, a title, what a person who cannot see it is told, and the
numbers behind it as a table.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

WIDTH: Final = 720
LEFT: Final = 92
RIGHT: Final = 20
TOP: Final = 14
BOTTOM: Final = 44

TITLE: Final = 30
LEGEND: Final = 20
KEY: Final = 36
LETTER: Final = 6.4
"""Of drawings that stand alone: heights of a title and of a row of the legend, widths of a key and of a letter."""

UNPRINTABLE: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

COLOURS: Final = 8
"""Classes c0 to c7 of the style, told apart by people who see colours differently (after Okabe and Ito 2008)."""


@dataclass(frozen=True)
class Chart:
    """One figure, with all that goes with it."""

    name: str  # of its file
    title: str
    told: str  # what it shows, in a sentence, for those who hear the page
    body: str  # elements of SVG
    height: int
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    legend: tuple[tuple[int, str], ...] = ()  # colour and name; from COLOURS on a colour is there a second time

    def svg(self) -> str:
        """The figure inside a page, which has the style, the title and the legend."""
        return _svg(self.body, self.height, f"{self.title}. {self.told}")

    def _repr_svg_(self) -> str:
        """What a notebook shows of it."""
        from foretell.report.page import figure_style

        return alone([self], figure_style())


def alone(charts: Sequence[Chart], style: str, paper: bool = False) -> str:
    """Charts as one drawing that needs nothing beside it: with legends, and of several each with its title.

    On `paper` it has a background of its own, to be read on a dark page too.
    """
    parts, top = [f"<style>{style}</style>"], 0.0
    for chart in charts:
        if len(charts) > 1 and chart.title:
            parts.append(text(LEFT, top + TITLE - 8, chart.title, kind="strong"))
            top += TITLE
        legend, height = _legend(chart.legend, chart.height)
        parts.append(f'<g transform="translate(0 {number(top)})">{chart.body}{legend}</g>')
        top += chart.height + height
    if paper:
        top += TITLE / 2
        parts.insert(1, f'<rect width="{WIDTH}" height="{math.ceil(top)}" rx="10" class="paper"/>')
    return _svg(
        "".join(parts),
        math.ceil(top),
        ". ".join(": ".join(filter(None, (chart.title, chart.told))) for chart in charts),
    )


def _svg(inside: str, height: float, told: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {number(height)}" role="img" '
        f'aria-label="{quoted(told)}" class="chart">{inside}</svg>'
    )


def _key(x: float, y: float, colour: int) -> str:
    """A square of a colour; of one that is there a second time with a gap, as its line has."""
    kind = f"c{colour % COLOURS}"
    if colour < COLOURS:
        return rectangle(x, y, 10, 10, kind)
    return rectangle(x, y, 4, 10, kind) + rectangle(x + 6, y, 4, 10, kind)


def _legend(names: Sequence[tuple[int, str]], top: float) -> tuple[str, float]:
    """Colours with their names in rows below a chart, and how high that is."""
    parts: list[str] = []
    x, y = float(LEFT), top + LEGEND / 2
    for colour, name in names:
        wide = KEY + LETTER * len(name)
        if x > LEFT and x + wide > WIDTH - RIGHT:
            x, y = float(LEFT), y + LEGEND
        parts.append(_key(x, y - 5, colour) + text(x + 16, y + 4, name, kind="tick"))
        x += wide
    return "".join(parts), y + LEGEND / 2 - top if names else 0.0


def quoted(text: object) -> str:
    """A text inside SVG or HTML, whatever it has in it; what XML has no place for becomes a question mark."""
    return escape(UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", str(text)), quote=True)


def number(value: float) -> str:
    """A coordinate: short, and never in a form that SVG cannot read."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


# --- elements -----------------------------------------------------------------------------------


def text(x: float, y: float, said: object, anchor: str = "start", kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{number(x)}" y="{number(y)}" text-anchor="{anchor}"{named}>{quoted(said)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    a, b, c, d = map(number, (x1, y1, x2, y2))
    return f'<line x1="{a}" y1="{b}" x2="{c}" y2="{d}" class="{kind}"/>'


def rectangle(x: float, y: float, width: float, height: float, kind: str) -> str:
    a, b, c, d = map(number, (x, y, max(0.0, width), max(0.0, height)))
    return f'<rect x="{a}" y="{b}" width="{c}" height="{d}" class="{kind}"/>'


def circle(x: float, y: float, radius: float, kind: str) -> str:
    return f'<circle cx="{number(x)}" cy="{number(y)}" r="{number(radius)}" class="{kind}"/>'


def path(points: Sequence[tuple[float, float]], kind: str) -> str:
    drawn = " ".join(f"{'M' if not at else 'L'}{number(x)} {number(y)}" for at, (x, y) in enumerate(points))
    return f'<path d="{drawn}" class="{kind}"/>'


def line_kind(colour: int, dashed: bool = False) -> str:
    """The classes of a line; colours that are there a second time are dashed."""
    return f"line s{colour % COLOURS}{' dashed' if dashed or colour >= COLOURS else ''}"


def mark(drawn: str, tip: str) -> str:
    """Something that tells its numbers when it is pointed at or reached with the keyboard."""
    return f'<g class="mark" tabindex="-1" role="img" aria-label="{quoted(tip)}">{drawn}</g>'


# --- scales -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scale:
    """From values to places: `low` is drawn at `start` and `high` at `end`."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False
    unit: float = 1.0  # ticks are round numbers of these

    def __call__(self, value: float) -> float:
        low, high, at = self.low, self.high, value
        if self.logarithmic:
            low, high, at = math.log(low), math.log(high), math.log(max(value, self.low / 1e6))
        share = (at - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)

    def ticks(self, count: int = 5) -> list[float]:
        """Round values between the ends."""
        if self.logarithmic and self.high > FEW * self.low:
            return [tick * self.unit for tick in _powers(self.low / self.unit, self.high / self.unit)]
        low, high = self.low / self.unit, self.high / self.unit
        span = (high - low) / max(1, count)
        if span <= 0:
            return [self.low]
        power = 10 ** math.floor(math.log10(span))
        step = next(power * times for times in (1, 2, 2.5, 5, 10) if power * times >= span * 0.999)
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        return [at * step * self.unit for at in range(first, last + 1)]


FEW: Final = 6.0
"""Ends of a logarithmic scale that are nearer have ticks at equal distances."""


def byte_unit(most: float) -> float:
    """The unit in which so many bytes are told."""
    return next(unit for unit in (2.0**40, 2.0**30, 2.0**20, 2.0**10, 1.0) if most >= 2 * unit or unit == 1)


def _powers(low: float, high: float) -> Iterator[float]:
    """Powers of ten and, where these are few, their doubles and fives."""
    decades = math.log10(high / low) if high > low > 0 else 0
    times = (1, 2, 5) if decades < 2.5 else (1,)
    for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        for factor in times:
            value = factor * 10.0**power
            if low * 0.999 <= value <= high * 1.001:
                yield value


Shown = Callable[[float], str]


def frame(
    x: Scale, y: Scale, x_name: str, y_name: str, show_x: Shown, show_y: Shown, at_x: Sequence[float] = ()
) -> str:
    """Grid, ticks and names of both axes. `at_x`: ticks of the first one, if not round values."""
    parts: list[str] = []
    for value in y.ticks():
        parts.append(line(x.start, y(value), x.end, y(value), "grid"))
        parts.append(text(x.start - 8, y(value) + 4, show_y(value), "end", "tick"))
    for value in at_x or x.ticks(6):
        parts.append(line(x(value), y.start, x(value), y.start + 4, "axis"))
        parts.append(text(x(value), y.start + 18, show_x(value), "middle", "tick"))
    parts.append(line(x.start, y.start, x.end, y.start, "axis"))
    parts.append(text((x.start + x.end) / 2, y.start + 36, x_name, "middle", "name"))
    middle = (y.start + y.end) / 2
    parts.append(
        f'<text x="14" y="{number(middle)}" text-anchor="middle" class="name" '
        f'transform="rotate(-90 14 {number(middle)})">{quoted(y_name)}</text>'
    )
    return "".join(parts)


def padded(low: float, high: float, share: float = 0.06) -> tuple[float, float]:
    """The same ends with some room around, for logarithmic scales."""
    room = (high / low) ** share if high > low > 0 else 1.2
    return low / room, high * room
