"""Memory of a rank over its slots: what rests, and the activations of the micro-batches in flight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from foretell.report.charts.memory import NEAR
from foretell.report.svg import (
    BOTTOM,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Chart,
    Scale,
    byte_unit,
    frame,
    line,
    mark,
    path,
    rectangle,
    text,
)
from foretell.units import show_bytes

HEIGHT = 260
MOST = 400
"""Slots that are drawn; of more, evenly chosen ones and the fullest."""


class Moment(NamedTuple):
    """One slot of a rank."""

    name: str  # forward 3, backward 0
    bytes: float  # at its fullest


def draw(moments: Sequence[Moment], resting: float, usable: float, rank: str) -> Chart:
    """A step line over slots, with what rests below it and the limit above."""
    shown = _chosen(moments)
    peak = max(one.bytes for one in shown)
    near = peak > NEAR * usable
    top = 1.06 * max(usable, peak) if near else 1.2 * peak
    x = Scale(0, max(1, len(shown)), LEFT, WIDTH - RIGHT)
    y = Scale(0.0, top, HEIGHT - BOTTOM, TOP, unit=byte_unit(top))
    ticks = sorted({0, *(len(shown) * part // 6 for part in range(1, 6))})
    at_x = [float(tick) for tick in ticks if tick < len(shown)]
    parts = [frame(x, y, "slots of a step, in order", "memory", lambda at: shown[int(at)].name, show_or_zero, at_x)]
    parts.append(mark(rectangle(x(0), y(resting), x(len(shown)) - x(0), y(0) - y(resting), "c1 faint"),
                      f"what rests the whole step: {show_bytes(resting)}"))  # fmt: skip
    points: list[tuple[float, float]] = []
    for at, one in enumerate(shown):
        points += [(x(at), y(one.bytes)), (x(at + 1), y(one.bytes))]
        kind = "c0" if one.bytes == peak else "c0 faint"
        area = rectangle(x(at), y(one.bytes), x(at + 1) - x(at), y(resting) - y(one.bytes), kind)
        parts.append(mark(area, f"{one.name}: {show_bytes(one.bytes)}"))
    parts += [path(points, "line s0"), *([line(x(0), y(usable), x(len(shown)), y(usable), "limit")] if near else [])]
    high = y(usable) - 5 if near else TOP + 8
    parts.append(text(WIDTH - RIGHT, high, f"may be used: {show_bytes(usable)}", "end", "tick"))
    fullest = max(shown, key=lambda one: one.bytes)
    return Chart(
        name="memory-over-time",
        title=f"Memory over a step, {rank}",
        told=f"the fullest slots, dark, have {show_bytes(fullest.bytes)}, the first of them {fullest.name}; "
        f"{show_bytes(resting)} rest the whole step",
        body="".join(parts),
        height=HEIGHT,
        columns=("slot", "memory"),
        rows=tuple((one.name, show_bytes(one.bytes)) for one in shown[:40]),
        legend=((0, "activations and work"), (1, "weights, gradients, states, buffers")),
    )


def show_or_zero(value: float) -> str:
    return show_bytes(value) if value else "0"


def _chosen(moments: Sequence[Moment]) -> list[Moment]:
    if len(moments) <= MOST:
        return list(moments)
    fullest = max(range(len(moments)), key=lambda at: moments[at].bytes)
    places = sorted({at * len(moments) // MOST for at in range(MOST)} | {fullest})
    return [moments[at] for at in places]
