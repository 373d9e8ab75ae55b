"""A step's events in fewer: what is alike in a slot is one event, and one micro-batch stays as it is.

A step of 128 micro-batches over 80 layers is close to a million events, nearly all of them the same few hundred again.
Beyond a budget, events of one stream that one slot has and that are of one sort (a phase, or a collective by its name)
become one event as long as all of them together; where that is not enough, slots that follow each other are folded
too. What happens once a step is never folded. Seconds, bytes and flops of every sort are kept, and so is the end of the
step; only the order inside what was folded is lost.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import groupby

import msgspec

from foretell.plan.schedule import Slot
from foretell.timeline.simulate import Event, Simulated

BUDGET = 25_000
"""Events that a trace has at most: less than 5 MB, which viewers open at once."""

MESSAGES = ("activations", "weights")
WORDS = {"host": "launches", "transfer": "sends", "copy": "copies"}


class Folded(msgspec.Struct, frozen=True):
    """The events of a step, and what was folded."""

    events: tuple[tuple[Event, int], ...]  # each with how many it stands for
    whole: int  # events that were played
    slots: int = 0  # that one event stands for; 0: nothing is folded
    detailed: int = -1  # the micro-batch whose events are all there; -1: none of them, or every one

    @property
    def said(self) -> str:
        """What was folded, in a sentence."""
        if not self.slots:
            return "nothing: every event is here"
        each = "a slot" if self.slots == 1 else f"{self.slots} slots in a row"
        detailed = f"; micro-batch {self.detailed} is written event by event" if self.detailed >= 0 else ""
        return (
            f"{self.whole:,} events into {len(self.events):,}: what is alike on one stream in {each} is one event, "
            f"as long as all of it{detailed}"
        )


def fold(simulated: Simulated, budget: int = BUDGET) -> Folded:
    """A step in so many events, if it can be: what happens once a step and a few events of each stream are left."""
    events = simulated.events
    if len(events) <= budget:
        return Folded(tuple((event, 1) for event in events), len(events))
    shown = _detailed(simulated, budget // 2)
    places = _places(events)
    slots = 1
    while True:
        folded = tuple(_folded(events, slots, shown, places))
        if len(folded) <= budget or slots >= max(places.values(), default=1):
            return Folded(folded, len(events), slots, shown)
        kept = sum(event.slot is None or event.slot.microbatch == shown for event, _ in folded)
        times = (len(folded) - kept) / max(1, budget - kept)
        slots *= 2 ** max(1, math.ceil(math.log2(times)) if times > 1 else 1)


def _detailed(simulated: Simulated, budget: int) -> int:
    """A micro-batch of the steady state, if all its events are few enough."""
    counts = Counter(event.slot.microbatch for event in simulated.events if event.slot is not None)
    middle = simulated.microbatches // 2
    return middle if counts[middle] <= budget else -1


def _places(events: Iterable[Event]) -> dict[tuple[int, Slot], int]:
    """The number of every slot in the order of its rank."""
    found: dict[tuple[int, Slot], int] = {}
    counts: Counter[int] = Counter()
    for event in events:
        if event.slot is not None and (event.kind, event.slot) not in found:
            found[event.kind, event.slot] = counts[event.kind]
            counts[event.kind] += 1
    return found


def _folded(
    events: Iterable[Event], slots: int, shown: int, places: Mapping[tuple[int, Slot], int]
) -> Iterator[tuple[Event, int]]:
    def together(event: Event) -> Slot | int | None:
        if event.slot is None or event.slot.microbatch == shown:
            return event.slot
        return places[event.kind, event.slot] // slots

    for _, stream in groupby(sorted(events, key=_stream), key=_stream):
        for place, own in groupby(sorted(stream, key=_start), key=together):
            group = list(own)
            yield from _sums(group) if isinstance(place, int) else ((event, 1) for event in group)


def _stream(event: Event) -> tuple[int, str]:
    return event.kind, event.stream


def _start(event: Event) -> float:
    return event.start


def _sums(group: list[Event]) -> Iterator[tuple[Event, int]]:
    """One event for each sort, one after the other from where the first of them began."""
    sorts: dict[Hashable, list[Event]] = {}
    for event in group:
        sorts.setdefault(_sort(event), []).append(event)
    at = group[0].start
    for own in sorts.values():
        first, seconds = own[0], sum(event.seconds for event in own)
        name = first.name if len(own) == 1 else _name(own)
        yield (
            first._replace(
                name=name,
                start=at,
                seconds=seconds,
                bytes=sum(event.bytes for event in own),
                flops=sum(event.flops for event in own),
            ),
            len(own),
        )
        at += seconds


def _sort(event: Event) -> tuple[str, str]:
    return event.category, event.name.split()[0] if event.category in MESSAGES else ""


def _name(own: list[Event]) -> str:
    """What several are called: a collective by its name, a phase by the micro-batches it was for."""
    first = own[0]
    what = first.name.split()[0] if first.category in MESSAGES else WORDS.get(first.category, first.category)
    batches = [event.slot.microbatch for event in own if event.slot is not None]
    if not batches:
        return what
    low, high = min(batches), max(batches)
    return f"{what} of micro-batch {low}" if low == high else f"{what} of micro-batches {low} to {high}"
