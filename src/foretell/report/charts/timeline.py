"""When each kind of rank does what: a row for each of its streams, a bar for each stretch of one category."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from foretell.report.svg import LEFT, RIGHT, TOP, WIDTH, Chart, Scale, line, mark, rectangle, text
from foretell.timeline.simulate import Event, Simulated
from foretell.units import show_seconds

ROW = 15
SPACE = 8
MOST_RANKS = 16
"""Kinds of ranks that are drawn: the first ones and the last."""

FINEST = 1600
"""Stretches shorter than this part of a step are joined with what follows."""

STREAMS = ("host", "compute", "activations", "weights", "sends", "copies")
CATEGORIES = {
    "forward": 0,
    "backward": 1,
    "recompute": 2,
    "optimizer": 3,
    "weights": 4,
    "activations": 5,
    "transfer": 6,
    "copy": 7,
    "host": 7,
}


class Stretch(NamedTuple):
    """Events of one category on one stream, with no gap worth drawing between them."""

    category: str
    start: float
    end: float
    events: int
    name: str


def draw(simulated: Simulated) -> Chart:
    """The pipeline from its first place to its last."""
    begin = min((event.start for event in simulated.events), default=0.0)
    end = max((event.start + event.seconds for event in simulated.events), default=1.0)
    x = Scale(begin, end, LEFT, WIDTH - RIGHT)
    parts: list[str] = []
    rows: list[tuple[str, ...]] = []
    y = float(TOP)
    for kind in _shown(len(simulated.kinds)):
        own = [event for event in simulated.events if event.kind == kind]
        streams = sorted({event.stream for event in own}, key=lambda name: STREAMS.index(name.split()[0]))
        parts.append(text(LEFT, y + 11, simulated.kinds[kind], "start", "name"))
        y += ROW
        for stream in streams:
            parts.append(text(LEFT - 8, y + 10, stream, "end", "small"))
            busy = 0.0
            parts.append(rectangle(x(begin), y, x(end) - x(begin), ROW - 2, "row"))
            for one in stretches([event for event in own if event.stream == stream], (end - begin) / FINEST):
                busy += one.end - one.start
                many = f", {one.events} in a row" if one.events > 1 else ""
                tip = f"place {kind}, {stream}: {one.name}{many}, {show_seconds(one.end - one.start)}"
                width = max(0.4, x(one.end) - x(one.start))
                parts.append(
                    mark(rectangle(x(one.start), y, width, ROW - 2, f"c{CATEGORIES.get(one.category, 7)}"), tip)
                )
            rows.append((f"place {kind}", stream, show_seconds(busy), f"{busy / (end - begin):.0%}"))
            y += ROW
        y += SPACE
    for value in x.ticks(6):
        parts.append(line(x(value), TOP, x(value), y, "grid over"))
        parts.append(text(x(value), y + 14, show_seconds(value) if value else "0", "middle", "tick"))
    used = {event.category for event in simulated.events}
    ranks = "1 kind of ranks" if len(simulated.kinds) == 1 else f"{len(simulated.kinds)} kinds of ranks"
    return Chart(
        name="timeline",
        title="A step, played through",
        told=f"{ranks}; the step ends after {show_seconds(simulated.step_seconds)}",
        body="".join(parts),
        height=int(y + 26),
        columns=("rank", "stream", "busy", "of the step"),
        rows=tuple(rows),
        legend=tuple((colour, name) for name, colour in CATEGORIES.items() if name in used),
    )


def _shown(kinds: int) -> list[int]:
    if kinds <= MOST_RANKS:
        return list(range(kinds))
    half = MOST_RANKS // 2
    return [*range(half), *range(kinds - half, kinds)]


def stretches(events: Sequence[Event], finest: float) -> Iterator[Stretch]:
    """Events in order, those of a category joined where less than `finest` lies between them."""
    now: Stretch | None = None
    for event in sorted(events, key=lambda one: one.start):
        end = event.start + event.seconds
        near = now is not None and event.start - now.end < finest
        if now is not None and near and (event.category == now.category or event.seconds < finest):
            now = now._replace(end=max(now.end, end), events=now.events + 1, name=now.category)
            continue
        if now is not None:
            yield now
        now = Stretch(event.category, event.start, end, 1, event.name)
    if now is not None:
        yield now
