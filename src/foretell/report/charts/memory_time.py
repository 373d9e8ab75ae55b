"""Memory of a rank over its slots: what rests, and the activations of the micro-batches in flight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from foretell.report import svg
from foretell.report.charts.memory import NEAR
from foretell.report.plot import Field, PlotAxis, or_zero
from foretell.report.svg import RIGHT, TOP, WIDTH, Chart, byte_unit
from foretell.units import show_bytes

HEIGHT = 260
MOST = 400
"""Slots that are drawn; of more, evenly chosen ones and the fullest."""


class MemorySlot(NamedTuple):
    """One slot of a rank."""

    name: str  # forward 3, backward 0
    bytes: float  # at its fullest


def draw(moments: Sequence[MemorySlot], resting: float, usable: float, rank: str) -> Chart:
    """A step line over slots, with what rests below it and the limit above."""
    shown = _chosen(moments)
    peak = max(one.bytes for one in shown)
    near = peak > NEAR * usable
    top = 1.06 * max(usable, peak) if near else 1.2 * peak
    ticks = sorted({0, *(len(shown) * part // 6 for part in range(1, 6))})
    at_x = [float(tick) for tick in ticks if tick < len(shown)]

    def name(at: float) -> str:
        return shown[int(at)].name

    slots = PlotAxis("slots of a step, in order", 0, max(1, len(shown)), name, at=at_x)
    plot = Field(HEIGHT, slots, PlotAxis("memory", 0.0, top, or_zero(show_bytes), unit=byte_unit(top)))
    rests = f"what rests the whole step: {show_bytes(resting)}"
    plot.draw(plot.box(0, resting, len(shown), 0, "c1 faint"), tip=rests)
    points: list[tuple[float, float]] = []
    for at, one in enumerate(shown):
        points += [(at, one.bytes), (at + 1, one.bytes)]
        kind = "c0" if one.bytes == peak else "c0 faint"
        plot.draw(plot.box(at, one.bytes, at + 1, resting, kind), tip=f"{one.name}: {show_bytes(one.bytes)}")
    plot.path(points, "line s0")
    said = f"{show_bytes(usable)} usable"
    if near:
        plot.limit(usable, said)
    else:
        plot.draw(svg.text(WIDTH - RIGHT, TOP + 8, said, "end", "tick"))
    fullest = max(shown, key=lambda one: one.bytes)
    return plot.chart(
        name="memory-over-time",
        title=f"Memory over a step, {rank}",
        told=f"the fullest slots, dark, have {show_bytes(fullest.bytes)}, the first of them {fullest.name}; "
        f"{show_bytes(resting)} rest the whole step",
        columns=("slot", "memory"),
        rows=((one.name, show_bytes(one.bytes)) for one in shown[:40]),
        legend=((0, "activations and work"), (1, "weights, gradients, states, buffers")),
    )


def _chosen(moments: Sequence[MemorySlot]) -> list[MemorySlot]:
    if len(moments) <= MOST:
        return list(moments)
    fullest = max(range(len(moments)), key=lambda at: moments[at].bytes)
    places = sorted({at * len(moments) // MOST for at in range(MOST)} | {fullest})
    return [moments[at] for at in places]
