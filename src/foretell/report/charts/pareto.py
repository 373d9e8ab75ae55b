"""Plans by time and memory: those that no other beats in both, the best ones, and the room that there is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from foretell.report.svg import (
    BOTTOM,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Chart,
    Scale,
    byte_unit,
    circle,
    frame,
    line,
    mark,
    padded,
    path,
    text,
)
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
    low, high = padded(min(one.seconds for one in every), max(one.seconds for one in every))
    x = Scale(low, high, LEFT, WIDTH - RIGHT, logarithmic=True)
    top = 1.06 * max(usable, *(one.bytes for one in every))
    y = Scale(0.0, top, HEIGHT - BOTTOM, TOP, unit=byte_unit(top))
    parts = [frame(x, y, "time of a step", "memory of a rank", show_seconds, _bytes)]
    parts.append(line(x.start, y(usable), x.end, y(usable), "limit"))
    parts.append(text(x.end, y(usable) - 5, f"may be used: {show_bytes(usable)}", "end", "tick"))
    told = {one.plan for one in front}
    for one in others:
        if one.plan not in told:
            parts.append(mark(circle(x(one.seconds), y(one.bytes), 4, "c7 edge"), _tip(one)))
    ordered = sorted(front, key=lambda one: one.seconds)
    steps: list[tuple[float, float]] = []
    for at, one in enumerate(ordered):
        if at:
            steps.append((x(one.seconds), y(ordered[at - 1].bytes)))
        steps.append((x(one.seconds), y(one.bytes)))
    parts.append(path(steps, "line s0"))
    for at, one in enumerate(ordered):
        parts.append(
            mark(circle(x(one.seconds), y(one.bytes), 6 if at == 0 else 5, "c0 edge" if at else "c1 edge"), _tip(one))
        )
    return Chart(
        name="plans",
        title="Plans by time and memory",
        told=f"the fastest is {ordered[0].plan} with {show_seconds(ordered[0].seconds)}; "
        f"the smallest on the front is {ordered[-1].plan} with {show_bytes(ordered[-1].bytes)}",
        body="".join(parts),
        height=HEIGHT,
        columns=("plan", "step", "memory"),
        rows=tuple((one.plan, show_seconds(one.seconds), show_bytes(one.bytes)) for one in ordered),
        legend=((1, "fastest"), (0, "no plan is both faster and smaller"), (7, "other good plans")),
    )


def _bytes(value: float) -> str:
    return show_bytes(value) if value else "0"


def _tip(one: Dot) -> str:
    return f"{one.plan}: {show_seconds(one.seconds)} a step, {show_bytes(one.bytes)}"
