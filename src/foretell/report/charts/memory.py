"""What memory is taken by: the worst rank by kind, against what the device has."""

from __future__ import annotations

from collections.abc import Mapping

from foretell.oracle.part_names import part_name
from foretell.report import svg
from foretell.report.plot import BarRows, PlotAxis, or_zero
from foretell.report.svg import COLOURS, LEFT, RIGHT, TOP, WIDTH, Chart, byte_unit
from foretell.units import show_bytes

BAR = 20
GAP = 8
WIDE = LEFT + 40
NEAR = 1 / 3
"""Share of the room from which on the limit is drawn: farther away, it would leave nothing to see."""


def draw(by_kind: Mapping[str, float], usable: float, capacity: float, moment: str) -> Chart:
    """A bar a kind, largest first, and one for all together with the room that there is."""
    kinds = [(part_name(name), size) for name, size in sorted(by_kind.items(), key=lambda one: -one[1]) if size >= 1]
    whole = sum(size for _, size in kinds)
    near = whole > NEAR * usable
    most = 1.02 * max(whole, capacity) if near else 1.25 * whole
    plot = BarRows(
        len(kinds) + 1, BAR + GAP, PlotAxis("", 0.0, most, or_zero(show_bytes), unit=byte_unit(most)), WIDE, ticks=5
    )
    x, before = plot.x, 0.0
    for at, (name, size) in enumerate(kinds):
        y, after = plot.top(at), before + size
        plot.label(y + 14, name, "name")
        side = ("start", x(after) + 6) if x(after) < WIDTH - 120 else ("end", x(before) - 6)
        plot.draw(
            plot.bar(before, after, y, BAR, f"c{at % COLOURS} edge"),
            svg.text(side[1], y + 14, show_bytes(size), side[0], "tick"),
            tip=f"{name}: {show_bytes(size)}, {size / whole:.1%}",
        )
        before = after
    room = f"{show_bytes(whole)} of {show_bytes(usable)} usable"
    y = plot.top(len(kinds))
    plot.label(y + 14, "all", "name strong")
    plot.draw(plot.bar(0, whole, y, BAR, "over" if whole > usable else "sum"), tip=room)
    if near:
        plot.draw(svg.line(x(usable), TOP, x(usable), plot.bottom, "limit"))
    said = (
        f"{show_bytes(usable)} usable" if near else f"{show_bytes(usable)} usable, {usable / whole:.0f} times as much"
    )
    plot.draw(svg.text((x(usable) if near else WIDTH - RIGHT) - 4, TOP - 4, said, "end", "tick"))
    return plot.chart(
        name="memory",
        title="What memory is taken by",
        told=f"{room}, at {moment}",
        columns=("kind", "bytes", "share"),
        rows=((name, show_bytes(size), f"{size / whole:.1%}") for name, size in kinds),
    )
