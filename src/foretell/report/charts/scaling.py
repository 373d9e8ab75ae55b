"""Strategies over numbers of ranks: samples a second, where lines end, and where two of them cross."""

from __future__ import annotations

from foretell.oracle.scale import Scaling, ScalingLine, ScalingPoint
from foretell.report import svg
from foretell.report.plot import Field, by_factors
from foretell.report.svg import COLOURS, WIDTH, Chart, line_kind
from foretell.units import show_rate, show_seconds

HEIGHT = 380
ROWS = 5
"""Of words at crossings, so that neighbours do not lie on each other."""


def draw(found: Scaling) -> Chart:
    """Both axes by factors, so that a line of perfect scaling is straight."""
    lines = [one for one in (found.best, *found.lines) if one.points]
    points = [point for one in lines for point in one.points]
    rates = [point.samples_per_second for point in points]
    across = by_factors("GPUs", found.counts, "{:g}".format, 0.03, found.counts)
    plot = Field(HEIGHT, across, by_factors("samples/s", rates, show_rate, 0.05))
    _crossings(found, plot)
    for at, one in enumerate(lines):
        plot.path([(p.ranks, p.samples_per_second) for p in one.points], line_kind(at))
        for point in one.points:
            tip = (
                f"{one.name} on {point.ranks}: {show_rate(point.samples_per_second)} samples/s, "
                f"{show_seconds(point.step_seconds)} a step, efficiency {point.efficiency:.0%}, {point.plan}"
            )
            plot.dot(point.ranks, point.samples_per_second, 4.5, f"c{at % COLOURS} edge", tip)
    return plot.chart(
        name="scaling",
        title="Throughput over GPUs",
        told=_told(found, lines),
        columns=("strategy", "GPUs", "samples/s", "step", "efficiency", "plan"),
        rows=(_row(one.name, point) for one in lines for point in one.points),
        legend=((at, one.name) for at, one in enumerate(lines)),
    )


def _row(name: str, point: ScalingPoint) -> tuple[str, ...]:
    rate, step = show_rate(point.samples_per_second), show_seconds(point.step_seconds)
    return name, str(point.ranks), rate, step, f"{point.efficiency:.0%}", point.plan


def _crossings(found: Scaling, plot: Field) -> None:
    for at, one in enumerate(found.crossings):
        x = plot.x((one.low * one.high) ** 0.5)
        high = plot.y.end + 10 + 12 * (at % ROWS)
        side = ("start", 6) if x < WIDTH / 2 else ("end", -6)
        plot.draw(
            svg.line(x, plot.y.start, x, plot.y.end, "crossing"),
            svg.text(x + side[1], high, f"{one.first}, then {one.second}", side[0], "small"),
            tip=f"{one.first} is faster up to {one.low} GPUs, {one.second} from {one.high} on",
        )


def _told(found: Scaling, lines: list[ScalingLine]) -> str:
    best = [f"on {point.ranks} {point.plan}" for point in found.best.points]
    single = [f"on {ranks} {name}" for ranks, name in found.fastest.items()]
    alone = f"; of one strategy the fastest: {', '.join(single)}" if single else ""
    return f"{len(lines)} lines; the best plan: {', '.join(best)}{alone}"
