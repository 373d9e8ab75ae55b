"""When ranks do what: a row for each stream of some pipeline ranks, over the whole step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from foretell.report import svg
from foretell.report.mixes import CATEGORIES, WORDS, Mix, mixes
from foretell.report.plot import Plot
from foretell.report.svg import LEFT, RIGHT, TOP, WIDTH, Chart, Scale
from foretell.timeline.simulate import Event, Simulated
from foretell.units import show_seconds

ROW = 15
SPACE = 8
FEW = 3
"""Pipeline ranks whose streams are drawn: the first, one in the middle, the last."""

FINEST = 600
"""Parts of a step that are told apart: what is shorter is drawn as shares."""

THINNEST = 0.4
"""Width of what is narrower, so that it can be seen."""

STREAMS = ("host", "compute", "activations", "weights", "sends", "copies")


def draw(simulated: Simulated, finest: int = FINEST) -> Chart:
    """The whole step; of it, so many stretches can be told apart."""
    begin = min((event.start for event in simulated.events), default=0.0)
    end = max((event.start + event.seconds for event in simulated.events), default=1.0)
    x, y = Scale(begin, end, LEFT, WIDTH - RIGHT), float(TOP)
    plot = Plot(x, y)
    rows: list[tuple[str, ...]] = []
    drawn: list[Mix] = []
    own: dict[tuple[int, str], list[Event]] = defaultdict(list)
    for event in simulated.events:
        own[event.kind, event.stream].append(event)
    for kind in shown(len(simulated.kinds)):
        name = simulated.kinds[kind]
        plot.draw(svg.text(LEFT, y + 11, name, "start", "name"))
        y += ROW
        for stream in sorted((name for at, name in own if at == kind), key=_place):
            plot.draw(svg.text(LEFT - 8, y + 10, stream, "end", "small"))
            plot.draw(svg.rectangle(x(begin), y, x(end) - x(begin), ROW - 2, "row"))
            found = mixes(own[kind, stream], (end - begin) / finest)
            for one in found:
                bars(plot, x, one, y, ROW - 2, f"{name}, {stream}")
            drawn += found
            busy = sum(event.seconds for event in own[kind, stream])
            rows.append((name, stream, show_seconds(busy), f"{busy / (end - begin):.0%}"))
            y += ROW
        y += SPACE
    for value in x.ticks(6):
        plot.draw(svg.line(x(value), TOP, x(value), y, "grid over"))
        plot.draw(svg.text(x(value), y + 14, show_seconds(value) if value else "0", "middle", "tick"))
    plot.height = y + 26
    return plot.chart(
        name="timeline",
        title="Streams over the whole step",
        told=_told(simulated),
        columns=("ranks", "stream", "busy", "of the step"),
        rows=rows,
        legend=legend(drawn),
    )


def _told(simulated: Simulated) -> str:
    kinds = len(simulated.kinds)
    ranks = "" if kinds <= FEW else f", on {FEW} of {kinds} pipeline ranks"
    end = f"the step ends after {show_seconds(simulated.step_seconds)}"
    return f"What each stream does{ranks}; {end}. Where parts are too short to draw, colours are stacked by their share"


def legend(drawn: Iterable[Mix]) -> list[tuple[int, str]]:
    """Colours of what is drawn."""
    used = {category for one in drawn for category in one.seconds}
    return [(colour, WORDS.get(name, name)) for name, colour in CATEGORIES.items() if name in used]


def bars(plot: Plot, x: Scale, one: Mix, y: float, high: float, where: str) -> None:
    """One stretch, divided from the bottom up by the shares of its categories; what is left is idle."""
    whole, at = one.end - one.start, y + high
    start, width = x(one.start), max(THINNEST, x(one.end) - x(one.start))
    drawn = ""
    for category, seconds in one.seconds.items():
        tall = high * seconds / whole
        at -= tall
        drawn += svg.rectangle(start, at, width, tall, f"c{CATEGORIES[category]}")
    plot.draw(drawn, tip=f"{where}: {one.name}, {show_seconds(whole)}: {one.told()}")


def shown(kinds: int, most: int = FEW) -> list[int]:
    """Places of pipeline ranks that are drawn, spread evenly from the first to the last."""
    if kinds <= most:
        return list(range(kinds))
    return [round(at * (kinds - 1) / (most - 1)) for at in range(most)]


def _place(stream: str) -> tuple[int, str]:
    return STREAMS.index(stream.split()[0]), stream
