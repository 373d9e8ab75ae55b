"""What a step is spent on: one bar of parts, or several under each other (a prediction and a measurement)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from foretell.oracle.part_names import part_name
from foretell.report import svg
from foretell.report.plot import BarRows, PlotAxis, or_zero
from foretell.report.svg import COLOURS, LEFT, LETTER, Chart, Shown
from foretell.units import show_seconds

BAR = 46
SLIM = 24
"""Heights of a bar: of a few, and of many."""

FEW = 3
GAP = 16
LEAST = 1e-6
"""Share of a step below which a part is rounding, not time."""

OWN = {
    "forward": 0,
    "backward": 1,
    "recompute": 2,
    "optimizer": 3,
    "exposed.dp": 4,
    "exposed.tp": 5,
    "exposed.pp": 6,
    "bubble": 7,
}
"""Colours that a part has in every chart, as in the timeline; others have those that are left."""


def labels(part: str) -> tuple[str, ...]:
    """What may stand in a bar, the longest first."""
    axis = part.removeprefix("exposed.")
    whole = part_name(part)
    return (whole, part) if axis == part else (whole, whole.removesuffix(" communication"), axis.upper())


def phases(breakdowns: Sequence[Mapping[str, float]]) -> list[str]:
    """All phases, the largest first, so that a phase has one colour in all bars."""
    sums: dict[str, float] = {}
    for breakdown in breakdowns:
        for name, seconds in breakdown.items():
            sums[name] = sums.get(name, 0.0) + seconds
    whole = sum(sums.values())
    return [name for name in sorted(sums, key=lambda one: -sums[one]) if sums[name] > LEAST * whole]


def colours(names: Sequence[str]) -> dict[str, int]:
    """A colour for each part; where there are more parts than colours, some have the same."""
    taken = {OWN[name] for name in names if name in OWN}
    left = [at for at in range(COLOURS) if at not in taken] or list(range(COLOURS))
    others = [name for name in names if name not in OWN]
    return {name: OWN[name] for name in names if name in OWN} | {
        name: left[at % len(left)] for at, name in enumerate(others)
    }


def draw(
    bars: Mapping[str, Mapping[str, float]],
    intervals: Mapping[str, tuple[float, float]] | None = None,
    file: str = "step",
    title: str = "What a step is spent on",
    show: Shown = show_seconds,
    takes: str = "takes",
    unit: float = 1.0,
) -> Chart:
    """Bars by name, each with its parts; `intervals` are drawn below the bars that have one.

    Of anything that adds up: `show` tells a value, and ticks are round numbers of the `unit`.
    """
    tall = BAR if len(bars) <= FEW else SLIM
    left = max(LEFT, 14 + LETTER * max(map(len, bars)))
    names = phases(list(bars.values()))
    colour = colours(names)
    ends = [sum(bar.values()) for bar in bars.values()] + [high for _, high in (intervals or {}).values()]
    plot = BarRows(len(bars), tall + GAP, PlotAxis("", 0.0, 1.04 * max(ends), or_zero(show), unit=unit), left)
    rows: list[tuple[str, ...]] = []
    for place, (name, bar) in enumerate(bars.items()):
        whole, at, y = sum(bar.values()), 0.0, plot.top(place)
        plot.label(y + tall / 2 + 4, name, "name")
        for phase in names:
            seconds = bar.get(phase, 0.0)
            if seconds <= LEAST * whole:
                continue
            drawn = plot.bar(at, at + seconds, y, tall, f"c{colour[phase]} edge")
            start, end = plot.x(at), plot.x(at + seconds)
            label = next((one for one in labels(phase) if end - start > 7 * len(one) + 8), "")
            if label:
                drawn += svg.text((start + end) / 2, y + tall / 2 + 4, label, "middle", f"inside on{colour[phase]}")
            plot.draw(drawn, tip=f"{part_name(phase)}: {show(seconds)}, {seconds / whole:.1%} of {name}")
            rows.append((name, phase, show(seconds), f"{seconds / whole:.1%}"))
            at += seconds
        if intervals and name in intervals:
            _interval(plot, *intervals[name], y + tall + 6, show)
    wholes = sorted((sum(bar.values()), name) for name, bar in bars.items())
    least_and_most = [*bars] if len(bars) <= FEW else [wholes[0][1], wholes[-1][1]]
    told = "; ".join(f"{name} {takes} {show(sum(bars[name].values()))}" for name in least_and_most)
    return plot.chart(
        name=file,
        title=title,
        told=f"{told}. The longest part is {names[0]}." if names else told,
        columns=("step", "part", "time", "share"),
        rows=rows,
        legend=((colour[name], part_name(name)) for name in names),
    )


def _interval(plot: BarRows, low: float, high: float, y: float, show: Shown) -> None:
    a, b = plot.x(low), plot.x(high)
    ends = (svg.line(x, y - 4, x, y + 4, "whisker") for x in (a, b))
    tip = f"nine in ten runs like it lie between {show(low)} and {show(high)}"
    plot.draw(svg.line(a, y, b, y, "whisker"), *ends, tip=tip)
