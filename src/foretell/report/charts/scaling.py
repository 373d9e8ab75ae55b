"""Strategies over numbers of ranks: samples a second, where lines end, and where two of them cross."""

from __future__ import annotations

from foretell.oracle.scale import Line, Scaling
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
from foretell.units import show_rate, show_seconds

HEIGHT = 380
ROWS = 5
"""Of words at crossings, so that neighbours do not lie on each other."""


def draw(found: Scaling) -> Chart:
    """Both axes by factors, so that a line of perfect scaling is straight."""
    lines = [one for one in found.lines if one.points]
    points = [point for one in lines for point in one.points]
    ranks = padded(min(found.counts), max(found.counts), 0.03)
    rates = padded(min(p.samples_per_second for p in points), max(p.samples_per_second for p in points), 0.05)
    x = Scale(*ranks, LEFT, WIDTH - RIGHT, logarithmic=True)
    y = Scale(*rates, HEIGHT - BOTTOM, TOP, logarithmic=True)
    parts = [frame(x, y, "GPUs", "samples a second", lambda at: f"{at:g}", show_rate, found.counts)]
    parts += _crossings(found, x, y)
    for at, one in enumerate(lines):
        colour = at % COLOURS
        parts.append(path([(x(p.ranks), y(p.samples_per_second)) for p in one.points], line_kind(at)))
        for point in one.points:
            tip = (
                f"{one.name} on {point.ranks}: {show_rate(point.samples_per_second)} samples/s, "
                f"{show_seconds(point.step_seconds)} a step, efficiency {point.efficiency:.0%}, {point.plan}"
            )
            parts.append(mark(circle(x(point.ranks), y(point.samples_per_second), 4.5, f"c{colour} edge"), tip))
    return Chart(
        name="scaling",
        title="Throughput over GPUs",
        told=_told(found, lines),
        body="".join(parts),
        height=HEIGHT,
        columns=("strategy", "GPUs", "samples/s", "step", "efficiency", "plan"),
        rows=tuple(
            (
                one.name,
                str(p.ranks),
                show_rate(p.samples_per_second),
                show_seconds(p.step_seconds),
                f"{p.efficiency:.0%}",
                p.plan,
            )
            for one in lines
            for p in one.points
        ),
        legend=tuple((at, one.name) for at, one in enumerate(lines)),
    )


def _crossings(found: Scaling, x: Scale, y: Scale) -> list[str]:
    parts: list[str] = []
    for at, one in enumerate(found.crossings):
        middle = (one.low * one.high) ** 0.5
        drawn = line(x(middle), y.start, x(middle), y.end, "crossing")
        high = y.end + 10 + 12 * (at % ROWS)
        side = ("start", 6) if x(middle) < WIDTH / 2 else ("end", -6)
        drawn += text(x(middle) + side[1], high, f"{one.first}, then {one.second}", side[0], "small")
        tip = f"{one.first} is faster up to {one.low} GPUs, {one.second} from {one.high} on"
        parts.append(mark(drawn, tip))
    return parts


def _told(found: Scaling, lines: list[Line]) -> str:
    best = [f"on {ranks} {name}" for ranks, name in found.fastest.items()]
    return f"{len(lines)} strategies; the fastest: {', '.join(best)}"
