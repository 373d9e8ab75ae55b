"""When each kind of rank does what: a row for each of its streams, a bar for each stretch of one category."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from foretell.report import svg
from foretell.report.plot import Plot
from foretell.report.svg import LEFT, RIGHT, TOP, WIDTH, Chart, Scale
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


def draw(simulated: Simulated, finest: int = FINEST) -> Chart:
    """The pipeline from its first place to its last; of a step, so many stretches can be told apart."""
    begin = min((event.start for event in simulated.events), default=0.0)
    end = max((event.start + event.seconds for event in simulated.events), default=1.0)
    x, y = Scale(begin, end, LEFT, WIDTH - RIGHT), float(TOP)
    plot = Plot(x, y)
    rows: list[tuple[str, ...]] = []
    own: dict[tuple[int, str], list[Event]] = defaultdict(list)
    for event in simulated.events:
        own[event.kind, event.stream].append(event)
    for kind in _shown(len(simulated.kinds)):
        streams = sorted(
            (name for at, name in own if at == kind), key=lambda name: (STREAMS.index(name.split()[0]), name)
        )
        plot.draw(svg.text(LEFT, y + 11, simulated.kinds[kind], "start", "name"))
        y += ROW
        for stream in streams:
            plot.draw(svg.text(LEFT - 8, y + 10, stream, "end", "small"))
            plot.draw(svg.rectangle(x(begin), y, x(end) - x(begin), ROW - 2, "row"))
            busy = 0.0
            for one in stretches(own[kind, stream], (end - begin) / finest):
                busy += one.end - one.start
                many = f", {one.events} in a row" if one.events > 1 else ""
                width = max(0.4, x(one.end) - x(one.start))
                plot.draw(
                    svg.rectangle(x(one.start), y, width, ROW - 2, f"c{CATEGORIES.get(one.category, 7)}"),
                    tip=f"place {kind}, {stream}: {one.name}{many}, {show_seconds(one.end - one.start)}",
                )
            rows.append((f"place {kind}", stream, show_seconds(busy), f"{busy / (end - begin):.0%}"))
            y += ROW
        y += SPACE
    for value in x.ticks(6):
        plot.draw(svg.line(x(value), TOP, x(value), y, "grid over"))
        plot.draw(svg.text(x(value), y + 14, show_seconds(value) if value else "0", "middle", "tick"))
    plot.height = y + 26
    used = {event.category for event in simulated.events}
    ranks = "1 kind of ranks" if len(simulated.kinds) == 1 else f"{len(simulated.kinds)} kinds of ranks"
    return plot.chart(
        name="timeline",
        title="A step, played through",
        told=f"{ranks}; the step ends after {show_seconds(simulated.step_seconds)}",
        columns=("rank", "stream", "busy", "of the step"),
        rows=rows,
        legend=((colour, name) for name, colour in CATEGORIES.items() if name in used),
    )


def _shown(kinds: int) -> list[int]:
    if kinds <= MOST_RANKS:
        return list(range(kinds))
    half = MOST_RANKS // 2
    return [*range(half), *range(kinds - half, kinds)]


def stretches(events: Sequence[Event], finest: float) -> Iterator[Stretch]:
    """Events in order, those of a category joined where less than `finest` lies between them."""
    joined: list[Event] = []
    begin = until = 0.0
    for event in sorted(events, key=_start):
        start, seconds = event.start, event.seconds
        if joined and start - until < finest and (event.category == joined[0].category or seconds < finest):
            joined.append(event)
            until = max(until, start + seconds)
            continue
        if joined:
            yield _stretch(joined, begin, until)
        joined, begin, until = [event], start, start + seconds
    if joined:
        yield _stretch(joined, begin, until)


_start = attrgetter("start")


def _stretch(joined: Sequence[Event], begin: float, until: float) -> Stretch:
    """What was joined goes by its first event, and where it is several by their category."""
    first = joined[0]
    return Stretch(first.category, begin, until, len(joined), first.name if len(joined) == 1 else first.category)
