"""What a stretch of time is made of, where its parts are too short to be drawn one by one.

A row of a timeline is cut where slots begin and end. Neighbours that are both narrower than can be seen are joined, and
what is joined keeps the seconds of each category: it is drawn as shares, never in the colour of one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from foretell.plan.schedule import Slot
from foretell.timeline.simulate import Event

CATEGORIES: Final = {
    "forward": 0,
    "backward": 1,
    "recompute": 2,
    "optimizer": 3,
    "activations": 5,
    "weights": 4,
    "transfer": 6,
    "copy": 7,
    "host": 7,
}
"""Their colours, in the order in which they are stacked. Where two go on at once, time counts for the first of them:
what a message shares with computation is hidden."""

WORDS: Final = {
    "activations": "TP, CP, EP communication",
    "weights": "gradient and weight communication",
    "transfer": "pipeline sends",
    "copy": "offload copies",
    "host": "kernel launches",
}

SLOTS: Final = {"F": "forward", "B": "backward", "I": "input gradients", "W": "weight gradients"}

Spans: TypeAlias = NDArray[np.float64]


class Run(NamedTuple):
    """Events in a row that belong together: a slot, or what happens once a step."""

    start: float
    end: float
    slot: Slot | None


class Mix(NamedTuple):
    """One stretch, the seconds of each category in it, and the slots that it covers."""

    start: float
    end: float
    seconds: dict[str, float]
    slots: tuple[Slot, ...]

    @property
    def busy(self) -> float:
        return sum(self.seconds.values())

    @property
    def name(self) -> str:
        """What it is: a slot by its name, several by their number."""
        if len(self.slots) == 1:
            return f"{SLOTS[self.slots[0].kind]} of micro-batch {self.slots[0].microbatch}"
        return f"{len(self.slots)} slots" if self.slots else ", ".join(WORDS.get(one, one) for one in self.seconds)

    def told(self) -> str:
        """Its parts as shares, the largest first."""
        whole = self.end - self.start
        parts = sorted(self.seconds.items(), key=lambda one: -one[1])
        told = [f"{WORDS.get(name, name)} {seconds / whole:.0%}" for name, seconds in parts]
        idle = 1 - self.busy / whole
        return ", ".join([*told, f"idle {idle:.0%}"] if idle > 0.005 else told)


def mixes(events: Sequence[Event], finest: float) -> list[Mix]:
    """A row of these events in time: stretches shorter than `finest` stand alone only where a gap is beside them."""
    if not events:
        return []
    ordered = sorted(events, key=lambda event: event.start)
    groups = list(_joined(_with_gaps(ordered), finest))
    edges = np.array([(group[0].start, max(run.end for run in group)) for group in groups])
    parts = _parts(ordered, edges)
    return [
        Mix(
            float(edges[at, 0]),
            float(edges[at, 1]),
            {name: float(seconds[at]) for name, seconds in parts.items() if seconds[at] > 1e-12},
            tuple(dict.fromkeys(run.slot for run in group if run.slot is not None)),
        )
        for at, group in enumerate(groups)
    ]


def spent(events: Sequence[Event]) -> dict[str, float]:
    """Seconds of each category in all; of what goes on at once, those of the first category."""
    whole = np.array([(-np.inf, np.inf)])
    return {name: float(seconds[0]) for name, seconds in _parts(events, whole).items()}


def _runs(ordered: Sequence[Event]) -> Iterator[Run]:
    for _, own in groupby(ordered, key=lambda event: event.slot or event.category):
        group = list(own)
        yield Run(group[0].start, max(event.start + event.seconds for event in group), group[0].slot)


BESIDE: Final = ("weights", "transfer", "host")
"""Categories that run beside slots, and may be for the slot before or after: they are seen where they fill a gap."""


def _with_gaps(ordered: Sequence[Event]) -> list[Run]:
    """Slots, and between them what fills a gap."""
    inside = [event for event in ordered if event.category not in BESIDE] or ordered
    runs: list[Run] = []
    for run in _runs(inside):  # the end of one slot's message may reach into the next
        start = max(run.start, runs[-1].end) if runs else run.start
        if run.end > start:
            runs.append(run._replace(start=start))
    islands = _islands(_spans(ordered))
    found: list[Run] = []
    until = -np.inf
    for run in [*runs, Run(np.inf, np.inf, None)]:
        first, last = np.searchsorted(islands[:, 1], until, "right"), np.searchsorted(islands[:, 0], run.start)
        for start, end in islands[first:last]:
            low, high = max(float(start), until), min(float(end), run.start)
            if high > low:
                found.append(Run(low, high, None))
        found.append(run)
        until = run.end
    return found[:-1]


def _joined(runs: Sequence[Run], finest: float) -> Iterator[list[Run]]:
    """Neighbours that are both narrow, with no gap between them that could be seen."""
    group: list[Run] = []
    for run in runs:
        narrow = group and group[-1].end - group[0].start < finest and run.end - run.start < finest
        if group and not (narrow and run.start - group[-1].end < finest):
            yield group
            group = []
        group.append(run)
    if group:
        yield group


def _parts(events: Sequence[Event], edges: Spans) -> dict[str, Spans]:
    """Seconds of each category between edges; of what goes on at once, those of the first category."""
    found: dict[str, Spans] = {}
    every, sorts = _spans(events), np.array([event.category for event in events])
    spans, before = np.zeros((0, 2)), np.zeros(len(edges))
    for category in CATEGORIES:
        own = every[sorts == category]
        if len(own):
            spans = _islands(np.concatenate([spans, own]))
            covered = _covered(spans, edges[:, 1]) - _covered(spans, edges[:, 0])
            found[category], before = covered - before, covered
    return found


def _spans(events: Sequence[Event]) -> Spans:
    return np.array([(event.start, event.start + event.seconds) for event in events])


def _islands(spans: Spans) -> Spans:
    """The same time without overlaps, in order."""
    ordered = spans[np.argsort(spans[:, 0], kind="stable")]
    ends = np.maximum.accumulate(ordered[:, 1])
    first = np.concatenate([[True], ordered[1:, 0] > ends[:-1]])
    last = np.concatenate([first[1:], [True]])
    return np.stack([ordered[first, 0], ends[last]], axis=1)


def _covered(islands: Spans, times: Spans) -> Spans:
    """Seconds of islands before each of these times."""
    sums = np.concatenate([[0.0], np.cumsum(islands[:, 1] - islands[:, 0])])
    at = np.searchsorted(islands[:, 0], times, "right")
    reached = islands[np.maximum(at - 1, 0), 1]
    return sums[at] - np.where(at > 0, np.maximum(0.0, reached - times), 0.0)
