"""What each pipeline rank does: a row a rank, a box a slot, with the steady state folded where it is long.

Of many micro-batches most are alike. The first ones, some of the middle and the last ones are drawn on one scale, with
a break between them that says how many are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from foretell.report import svg
from foretell.report.charts.timeline import bars, legend, shown
from foretell.report.mixes import CATEGORIES, Mix, mixes, spent
from foretell.report.plot import Plot
from foretell.report.svg import LEFT, RIGHT, TOP, WIDTH, Chart, Scale
from foretell.timeline.simulate import Event, Simulated
from foretell.units import show_seconds

MOST_RANKS = 16
HIGH, TALL = 22, 34
"""Heights of a row: of many, and of a few."""

FEW = 4
GAP = 4
BREAK = 26
"""Width of a break, between parts of a step."""

SEEN = 1.5
"""Pixels of the narrowest box."""

WORTH = 0.7
"""Share of a step that the parts which are drawn may have at most: else all of it is drawn."""

PERIODS = 2
"""Micro-batches of the steady state that are drawn."""

DIGIT = 6.0
"""Width of a digit in a box."""


class Part(NamedTuple):
    """A part of the step that is drawn."""

    start: float
    end: float


def draw(simulated: Simulated) -> Chart:
    """A row for each pipeline rank, from the first to the last."""
    rows: dict[int, list[Event]] = defaultdict(list)
    for event in simulated.events:
        if event.category != "transfer":  # a rank that sends does not wait for it
            rows[event.kind].append(event)
    parts = parts_of(simulated)
    room = WIDTH - LEFT - RIGHT - BREAK * (len(parts) - 1)
    scale = room / sum(part.end - part.start for part in parts)
    kinds = shown(len(simulated.kinds), MOST_RANKS)
    high = TALL if len(kinds) <= FEW else HIGH
    bottom = TOP + len(kinds) * (high + GAP)
    near = [_around(part, simulated) for part in parts]
    found = {
        kind: mixes([e for e in rows[kind] if any(a <= e.start < b for a, b in near)], SEEN / scale) for kind in kinds
    }
    plot = Plot(Scale(0, 1, LEFT, WIDTH - RIGHT), bottom + 26)
    left = float(LEFT)
    for at, part in enumerate(parts):
        x = Scale(part.start, part.end, left, left + scale * (part.end - part.start))
        for place, kind in enumerate(kinds):
            _row(plot, x, found[kind], (TOP + place * (high + GAP), high), simulated.kinds[kind])
        _ticks(plot, x, bottom)
        left = x.end + BREAK
        if at + 1 < len(parts):
            _break(plot, x.end, bottom)
    for place, kind in enumerate(kinds):
        name = f"pp rank {kind}" if len(simulated.kinds) > 1 else "every rank"
        plot.draw(svg.text(LEFT - 8, TOP + place * (high + GAP) + high / 2 + 4, name, "end", "tick"))
    return plot.chart(
        name="pipeline",
        title="What each pipeline rank does" if len(simulated.kinds) > 1 else "What a rank does",
        told=_told(simulated, parts, len(kinds)),
        columns=("ranks", *COLUMNS),
        rows=(_numbers(simulated, kind, rows[kind]) for kind in kinds),
        legend=legend(one for row in found.values() for one in row),
    )


COLUMNS = ("forward", "backward", "recompute", "exposed communication", "idle")


def _numbers(simulated: Simulated, kind: int, events: Sequence[Event]) -> tuple[str, ...]:
    """Seconds of the whole step; a rank's idle time is its bubble and what it waits for others."""
    found = spent(events)
    messages = found.get("activations", 0.0) + found.get("weights", 0.0)
    idle = max(0.0, simulated.step_seconds - sum(found.values()))
    shown = (*(found.get(name, 0.0) for name in COLUMNS[:3]), messages, idle)
    return (simulated.kinds[kind], *(show_seconds(one) if one else "-" for one in shown))


def parts_of(simulated: Simulated) -> list[Part]:
    """The first micro-batches, some of the steady state and the last ones, by what the first rank does; or all."""
    whole = Part(min((e.start for e in simulated.events), default=0.0), max(simulated.step_seconds, 1e-12))
    forward = sorted(_slots(simulated, "F"))
    backward = sorted(_slots(simulated, "BI"), key=lambda part: part.end)
    if not forward or not backward:
        return [whole]
    period = (whole.end - whole.start) / simulated.microbatches
    first = Part(whole.start, backward[0].end + period / 2)
    last = Part(forward[-1].start, whole.end)
    middle = forward[len(forward) // 2].start
    steady = Part(middle, middle + PERIODS * period)
    parts = [first, steady, last]
    if not first.end < steady.start <= steady.end < last.start:
        return [whole]
    drawn = sum(part.end - part.start for part in parts)
    spares = len(_microbatches(simulated, parts)) < simulated.microbatches
    return parts if spares and drawn < WORTH * (whole.end - whole.start) else [whole]


def _microbatches(simulated: Simulated, parts: Sequence[Part]) -> set[int]:
    """Of which the first rank begins a slot in these parts."""
    return {
        event.slot.microbatch
        for event in simulated.events
        if event.kind == 0 and event.slot is not None and any(part.start <= event.start < part.end for part in parts)
    }


def _around(part: Part, simulated: Simulated) -> Part:
    """A part with a micro-batch before and after it, so that slots at its ends are whole."""
    more = simulated.step_seconds / simulated.microbatches
    return Part(part.start - more, part.end + more)


def _slots(simulated: Simulated, kinds: str) -> list[Part]:
    """When the first rank's slots of some kinds were on."""
    found: dict[object, Part] = {}
    for event in simulated.events:
        if event.kind == 0 and event.stream == "compute" and event.slot is not None and event.slot.kind in kinds:
            end, old = event.start + event.seconds, found.get(event.slot, Part(event.start, 0.0))
            found[event.slot] = Part(min(old.start, event.start), max(old.end, end))
    return list(found.values())


def _row(plot: Plot, x: Scale, found: Sequence[Mix], place: tuple[float, float], name: str) -> None:
    """One rank's boxes, from `place` so far from the top and so high."""
    y, high = place
    plot.draw(svg.rectangle(x.start, y, x.end - x.start, high, "row"))
    for one in found:
        if one.end <= x.low or one.start >= x.high:
            continue
        inside = one._replace(start=max(one.start, x.low), end=min(one.end, x.high))
        share = (inside.end - inside.start) / (one.end - one.start)
        inside = inside._replace(seconds={k: v * share for k, v in one.seconds.items()})
        bars(plot, x, inside, y, high, name)
        _label(plot, x, inside, y, high)


def _label(plot: Plot, x: Scale, one: Mix, y: float, high: float) -> None:
    """The number of a micro-batch, in the lowest of its colours, where there is room for it."""
    if len(one.slots) != 1 or not one.seconds:
        return
    said, category = str(one.slots[0].microbatch), next(iter(one.seconds))
    tall = high * one.seconds[category] / (one.end - one.start)
    if x(one.end) - x(one.start) > DIGIT * len(said) + 3 and tall > 9:
        middle = (x(one.start) + x(one.end)) / 2
        plot.draw(svg.text(middle, y + high - tall / 2 + 3, said, "middle", f"digit on{CATEGORIES[category]}"))


TICK = 95
"""Pixels between marks of time."""


def _ticks(plot: Plot, x: Scale, bottom: float) -> None:
    for value in x.ticks(max(1, int((x.end - x.start) / TICK))) or [x.low]:
        plot.draw(svg.line(x(value), bottom - GAP + 2, x(value), bottom + 2, "axis"))
        plot.draw(svg.text(x(value), bottom + 14, show_seconds(value) if value else "0", "middle", "tick"))


def _break(plot: Plot, left: float, bottom: float) -> None:
    for x in (left + 4, left + BREAK - 4):
        plot.draw(svg.line(x, TOP - 4, x, bottom, "axis dashed"))
    plot.draw(svg.text(left + BREAK / 2, (TOP + bottom) / 2 + 4, "⋯", "middle", "name"))


def _told(simulated: Simulated, parts: Sequence[Part], drawn: int) -> str:
    kinds, count = len(simulated.kinds), simulated.microbatches
    ranks = f"{drawn} of {kinds} pipeline ranks. " if drawn < kinds else ""
    folded = ""
    if len(parts) > 1:
        inside = len(_microbatches(simulated, parts))
        folded = (
            f"Of {count:,} micro-batches {inside} are drawn: warm-up, a piece of the steady state, cool-down; "
            f"the other {count - inside:,} go on like those in the middle. "
        )
    return (
        f"{ranks}{folded}A box is a forward or backward pass of a micro-batch, its colours stacked by their shares of "
        f"the time; blank is idle: bubble, or waiting for another stage. "
        f"The step ends after {show_seconds(simulated.step_seconds)}"
    )
