"""Lines over an axis as an SVG file, without a library: panels side by side, a legend below."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22")
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 360, 260, 62, 30, 44


class Line(NamedTuple):
    name: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False


class Panel(NamedTuple):
    title: str
    across: str
    up: str
    lines: Sequence[Line]


class _Scale(NamedTuple):
    """From values to places, even or by powers of ten."""

    low: float
    high: float
    begin: float
    end: float
    powers: bool

    def at(self, value: float) -> float:
        low, high, value = (
            map(math.log10, (self.low, self.high, value)) if self.powers else (self.low, self.high, value)
        )
        return self.begin + (value - low) / ((high - low) or 1.0) * (self.end - self.begin)

    def ticks(self) -> list[float]:
        if not self.powers:
            return [self.low + (self.high - self.low) * part / 4 for part in range(5)]
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        fine = [
            10.0**power * part for power in range(first, last + 1) for part in ((1,) if last - first > 2 else (1, 2, 5))
        ]
        return [tick for tick in fine if self.low <= tick <= self.high]


def svg(panels: Sequence[Panel]) -> str:
    """The drawing. A name has one colour in all panels."""
    names = list(dict.fromkeys(line.name for panel in panels for line in panel.lines))
    colours = {name: COLOURS[at % len(COLOURS)] for at, name in enumerate(names)}
    rows = -(-len(panels) // 3)
    wide, high = min(3, len(panels)) * WIDTH, rows * HEIGHT
    parts = [_panel(panel, at % 3 * WIDTH, at // 3 * HEIGHT, colours) for at, panel in enumerate(panels)]
    legend = [_key(name, colours[name], at, high) for at, name in enumerate(names)]
    total = high + 18 * len(names) + 14
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {total}" font-family="sans-serif" font-size="11">'
    )
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, *legend, "</svg>\n"])


def _key(name: str, colour: str, at: int, top: float) -> str:
    y = top + 14 + 18 * at
    line = f'<line x1="20" x2="44" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2"/>'
    return f'{line}<text x="50" y="{y + 4}">{escape(name)}</text>'


def _panel(panel: Panel, left: float, top: float, colours: dict[str, str]) -> str:
    seen = [point for line in panel.lines for point in line.points if point[1] > 0 and math.isfinite(point[1])]
    if not seen:
        return ""
    across = _Scale(0.0, max(x for x, _ in seen) or 1.0, left + LEFT, left + WIDTH - 12, powers=False)
    ends = min(y for _, y in seen), max(y for _, y in seen)
    up = _Scale(ends[0] * 0.95, ends[1] * 1.05, top + HEIGHT - BOTTOM, top + TOP, powers=True)
    parts = [f'<text x="{left + LEFT}" y="{top + 18}" font-weight="bold">{escape(panel.title)}</text>']
    parts += [
        _grid(across.at(tick), up.end, across.at(tick), up.begin, f"{tick:.3g}", "middle") for tick in across.ticks()
    ]
    parts += [_grid(across.begin, up.at(tick), across.end, up.at(tick), f"{tick:.3g}", "end") for tick in up.ticks()]
    parts += [_line(line, across, up, colours[line.name]) for line in panel.lines]
    parts.append(
        f'<text x="{left + WIDTH / 2}" y="{top + HEIGHT - 12}" text-anchor="middle">{escape(panel.across)}</text>'
    )
    middle = top + HEIGHT / 2
    turned = f'x="{left + 12}" y="{middle}" transform="rotate(-90 {left + 12} {middle})" text-anchor="middle"'
    return "\n".join([*parts, f"<text {turned}>{escape(panel.up)}</text>"])


def _grid(x1: float, y1: float, x2: float, y2: float, label: str, anchor: str) -> str:
    line = f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#ddd"/>'
    x, y = (x1, y2 + 14) if anchor == "middle" else (x1 - 5, y1 + 4)
    return f'{line}<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#555">{label}</text>'


def _line(line: Line, across: _Scale, up: _Scale, colour: str) -> str:
    points = [(x, y) for x, y in line.points if y > 0 and math.isfinite(y)]
    path = " ".join(f"{across.at(x):.1f},{up.at(y):.1f}" for x, y in points)
    dash = ' stroke-dasharray="5 4"' if line.dashed else ""
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"{dash}/>'
