"""How far predictions were from measured runs: each source from its best tenth to its worst, with the middle."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from foretell.report.svg import LEFT, RIGHT, TOP, WIDTH, Chart, Scale, circle, line, mark, rectangle, text

ROW = 20
WIDE = LEFT + 70
FARTHEST = 1.0
"""Errors above this are drawn at the edge."""


def draw(errors: Mapping[str, Sequence[float]]) -> Chart:
    """A row a source, the one with most runs first."""
    names = sorted(errors, key=lambda name: -len(errors[name]))
    x = Scale(0.0, FARTHEST, WIDE, WIDTH - RIGHT)
    bottom = TOP + ROW * len(names)
    parts: list[str] = []
    rows: list[tuple[str, ...]] = []
    for value in x.ticks(5):
        parts.append(line(x(value), TOP, x(value), bottom, "grid"))
        parts.append(text(x(value), bottom + 16, f"{value:.0%}", "middle", "tick"))
    for at, name in enumerate(names):
        own = sorted(errors[name])
        low, high, middle = _share(own, 0.1), _share(own, 0.9), statistics.median(own)
        y = TOP + ROW * at + ROW / 2
        tip = f"{name}: {len(own)} runs, median error {middle:.1%}, nine in ten below {high:.0%}"
        drawn = rectangle(x(low), y - 5, x(min(high, FARTHEST)) - x(low), 10, "c0 faint")
        drawn += circle(x(min(middle, FARTHEST)), y, 4.5, "c1 edge")
        parts.append(text(WIDE - 8, y + 4, name, "end", "tick"))
        parts.append(mark(drawn, tip))
        rows.append((name, f"{len(own):,}", f"{middle:.1%}", f"{high:.1%}"))
    every = [error for own in errors.values() for error in own]
    parts.append(text((WIDE + WIDTH - RIGHT) / 2, bottom + 34, "error of the predicted step", "middle", "name"))
    return Chart(
        name="accuracy",
        title="Predictions against measured runs, by source",
        told=f"{len(every):,} runs, median error {statistics.median(every):.1%}",
        body="".join(parts),
        height=int(bottom + 44),
        columns=("source", "runs", "median error", "nine in ten below"),
        rows=tuple(rows),
        legend=((1, "median"), (0, "from the best tenth to the worst")),
    )


def _share(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
