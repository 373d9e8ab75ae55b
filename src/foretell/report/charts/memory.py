"""What memory is taken by: the worst rank by kind, against what the device has."""

from __future__ import annotations

from collections.abc import Mapping

from foretell.report.svg import COLOURS, LEFT, RIGHT, TOP, WIDTH, Chart, Scale, byte_unit, line, mark, rectangle, text
from foretell.units import show_bytes

BAR = 20
GAP = 8
WIDE = LEFT + 40
NEAR = 1 / 3
"""Share of the room from which on the limit is drawn: farther away, it would leave nothing to see."""


def draw(by_kind: Mapping[str, float], usable: float, capacity: float, moment: str) -> Chart:
    """A bar a kind, largest first, and one for all together with the room that there is."""
    kinds = [(name, size) for name, size in sorted(by_kind.items(), key=lambda one: -one[1]) if size >= 1]
    whole = sum(size for _, size in kinds)
    near = whole > NEAR * usable
    most = 1.02 * max(whole, capacity) if near else 1.25 * whole
    x = Scale(0.0, most, WIDE, WIDTH - RIGHT, unit=byte_unit(most))
    parts: list[str] = []
    bottom = TOP + (len(kinds) + 1) * (BAR + GAP)
    for value in x.ticks():
        parts.append(line(x(value), TOP, x(value), bottom, "grid"))
        side = "middle" if x(value) < WIDTH - 1.5 * RIGHT else "end"  # or the edge cuts the last one
        parts.append(text(x(value), bottom + 16, show_bytes(value) if value else "0", side, "tick"))
    y, before = float(TOP), 0.0
    for at, (name, size) in enumerate(kinds):
        said = f"{name}: {show_bytes(size)}, {size / whole:.1%}"
        drawn = rectangle(x(before), y, x(before + size) - x(before), BAR, f"c{at % COLOURS} edge")
        parts.append(text(WIDE - 8, y + 14, name, "end", "name"))
        side = ("start", x(before + size) + 6) if x(before + size) < WIDTH - 120 else ("end", x(before) - 6)
        parts.append(mark(drawn + text(side[1], y + 14, show_bytes(size), side[0], "tick"), said))
        before += size
        y += BAR + GAP
    room = f"{show_bytes(whole)} of {show_bytes(usable)} that a run may use"
    parts.append(text(WIDE - 8, y + 14, "all", "end", "name strong"))
    parts.append(mark(rectangle(x(0), y, x(whole) - x(0), BAR, "over" if whole > usable else "sum"), room))
    if near:
        parts.append(line(x(usable), TOP, x(usable), bottom, "limit"))
    said = "may be used" if near else f"{show_bytes(usable)} may be used, {usable / whole:.0f} times as much"
    parts.append(text((x(usable) if near else WIDTH - RIGHT) - 4, TOP + 8, said, "end", "tick"))
    return Chart(
        name="memory",
        title="What memory is taken by",
        told=f"{room}, at {moment}",
        body="".join(parts),
        height=int(bottom + 26),
        columns=("kind", "bytes", "share"),
        rows=tuple((name, show_bytes(size), f"{size / whole:.1%}") for name, size in kinds),
    )
