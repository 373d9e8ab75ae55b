"""Plans by time and memory: those that no other beats in both, the best ones, and the room that there is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from foretell.report.plot import Field, PlotAxis, by_factors, or_zero
from foretell.report.svg import Chart, byte_unit
from foretell.units import show_bytes, show_seconds

HEIGHT = 340


class Dot(NamedTuple):
    """One plan."""

    plan: str
    seconds: float
    bytes: float


def draw(front: Sequence[Dot], others: Sequence[Dot], usable: float) -> Chart:
    """Time across, memory up; the front is joined by steps."""
    every = [*front, *others]
    top = 1.06 * max(usable, *(one.bytes for one in every))
    across = by_factors("step time", (one.seconds for one in every), show_seconds)
    plot = Field(HEIGHT, across, PlotAxis("memory of a GPU", 0.0, top, or_zero(show_bytes), unit=byte_unit(top)))
    plot.limit(usable, f"may be used: {show_bytes(usable)}")
    told = {one.plan for one in front}
    for one in others:
        if one.plan not in told:
            plot.dot(one.seconds, one.bytes, 4, "c7 edge", _tip(one))
    ordered = sorted(front, key=lambda one: one.seconds)
    steps: list[tuple[float, float]] = []
    for at, one in enumerate(ordered):
        if at:
            steps.append((one.seconds, ordered[at - 1].bytes))
        steps.append((one.seconds, one.bytes))
    plot.path(steps, "line s0")
    for at, one in enumerate(ordered):
        plot.dot(one.seconds, one.bytes, 6 if at == 0 else 5, "c0 edge" if at else "c1 edge", _tip(one))
    return plot.chart(
        name="plans",
        title="Plans by time and memory",
        told=f"the fastest is {ordered[0].plan} with {show_seconds(ordered[0].seconds)}; "
        f"the smallest on the front is {ordered[-1].plan} with {show_bytes(ordered[-1].bytes)}",
        columns=("plan", "step", "memory"),
        rows=((one.plan, show_seconds(one.seconds), show_bytes(one.bytes)) for one in ordered),
        legend=((1, "fastest"), (0, "no plan is both faster and smaller"), (7, "other good plans")),
    )


def _tip(one: Dot) -> str:
    return f"{one.plan}: {show_seconds(one.seconds)} a step, {show_bytes(one.bytes)}"
