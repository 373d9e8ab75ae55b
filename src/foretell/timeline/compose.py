"""The time of a step from the times of its slots: a recurrence over the slots of each rank, in order.

A slot starts when its rank is free and what it waits for has arrived. It works on numbers or on arrays
of them alike: plans with the same slots are composed together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from foretell.plan.schedule import Slot
from foretell.units import Quantity, at_least


class SlotTimes(NamedTuple):
    """Seconds of one stage's slots, and of what it sends."""

    forward: Quantity
    backward: Quantity
    input_gradient: Quantity
    weight_gradient: Quantity
    send_forward: Quantity
    send_backward: Quantity

    def of(self, kind: str) -> Quantity:
        kinds = {"F": self.forward, "B": self.backward, "I": self.input_gradient, "W": self.weight_gradient}
        return kinds[kind]


class Composed(NamedTuple):
    """When each rank ends its last slot, and how long it worked."""

    ends: tuple[Quantity, ...]
    busy: tuple[Quantity, ...]


def compose(
    slots: Sequence[Sequence[Slot]], times: Sequence[SlotTimes], before: Sequence[int], after: Sequence[int]
) -> Composed:
    """Play the slots of all ranks; `before` and `after` are the neighbours of each stage, -1 for none."""
    done: dict[tuple[str, int, int], Quantity] = {}
    free: list[Quantity] = [0.0] * len(slots)
    busy: list[Quantity] = [0.0] * len(slots)
    at = [0] * len(slots)
    moved = True
    while moved:
        moved = False
        for rank, own in enumerate(slots):
            while at[rank] < len(own):
                slot = own[at[rank]]
                ready = _ready(slot, times, before, after, done)
                if ready is None:
                    break
                seconds = times[slot.stage].of(slot.kind)
                free[rank] = at_least(free[rank], ready) + seconds
                busy[rank] = busy[rank] + seconds
                done[_key(slot.kind), slot.stage, slot.microbatch] = free[rank]
                at[rank] += 1
                moved = True
    return Composed(tuple(free), tuple(busy))


def _key(kind: str) -> str:
    return {"F": "F", "B": "B", "I": "B", "W": "W"}[kind]


def _ready(
    slot: Slot,
    times: Sequence[SlotTimes],
    before: Sequence[int],
    after: Sequence[int],
    done: Mapping[tuple[str, int, int], Quantity],
) -> Quantity | None:
    """When what a slot waits for is there; None if somebody has not got so far yet."""
    if slot.kind == "W":
        return done.get(("B", slot.stage, slot.microbatch))
    forward = slot.kind == "F"
    neighbour = before[slot.stage] if forward else after[slot.stage]
    if neighbour < 0:
        return 0.0
    end = done.get(("F" if forward else "B", neighbour, slot.microbatch))
    if end is None:
        return None
    return end + (times[neighbour].send_forward if forward else times[neighbour].send_backward)
