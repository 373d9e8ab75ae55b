"""The time of a step from the times of its slots: a recurrence over the turns of each rank, in order.

A slot starts when its rank is free and what it receives has arrived. In it, host and device meet turn by turn, and
messages for weights are a queue of seconds that the rank's work and waiting drain. There are no events: clocks and
queues are sums and maxima, so they may be numbers or arrays of them. What waits for what is said in docs/timeline.md;
the simulation finds the same out by playing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from foretell.cost.slots import Pass, Slots, Turn
from foretell.plan.schedule import Slot
from foretell.program.program import Program, RankKind
from foretell.units import Quantity, at_least

Arrived: TypeAlias = dict[tuple[str, int, int], Quantity]
"""When what a stage sends for a micro-batch, forward or backward, is there."""


def compose(program: Program, slots: Slots) -> list[Rank]:
    """Play the slots of all ranks up to the optimizer; how each of them stands then."""
    ranks = [Rank(kind, program, slots) for kind in program.kinds]
    arrived: Arrived = {}
    while sum(rank.go_on(arrived) for rank in ranks):
        pass
    for rank in ranks:
        rank.wait_for_sums()
    return ranks


@dataclass
class Rank:
    """One kind of rank: its clocks, its queues, and how long it waited for what."""

    kind: RankKind
    program: Program
    slots: Slots
    at: int = 0  # its next slot
    free: Quantity = 0.0  # when the device is
    host: Quantity = 0.0  # when all so far is launched; never later than the device, which waits for it
    queue: Quantity = 0.0  # seconds of messages for weights that are under way
    issued: Quantity = 0.0  # of all that ever were
    once: Quantity = 0.0  # of sums that leave once a step: nobody waits for them yet, so they let others pass
    late: Quantity = 0.0  # how long the device waited for launches
    exposed: Quantity = 0.0  # and for messages for weights
    travels: bool = False  # whether there was any message for weights yet
    links: dict[str, Quantity] = field(default_factory=dict[str, Quantity])  # when each way is free

    def __post_init__(self) -> None:
        self.ends = {slot.stage: at for at, slot in enumerate(self.kind.slots) if slot.kind in ("B", "W")}

    def go_on(self, arrived: Arrived) -> bool:
        """Play slots as far as others have sent what they need; whether there was one."""
        start = self.at
        while self.at < len(self.kind.slots) and self._slot(self.kind.slots[self.at], arrived):
            self.at += 1
        return self.at > start

    def wait_for_sums(self) -> None:
        """All messages must be there; without overlap those due once a step leave only now."""
        if not self.slots.share:
            self.once += sum(self.slots.prices.message(one) for at in self.kind.stages for one in self.slots.once(at))
        self.exposed += self.queue + self.once
        self.free += self.queue + self.once

    def _slot(self, slot: Slot, arrived: Arrived) -> bool:
        own = self.slots.slot(slot.stage, slot.kind)
        stage = self.program.stages[slot.stage]
        way = "F" if slot.kind == "F" else "B"
        source = (way, stage.before if way == "F" else stage.after, slot.microbatch)
        if own.receives and source not in arrived:
            return False
        turns = own.last if self.ends.get(slot.stage) == self.at else own.turns
        gathers = _Gathers([turn.gather for turn in turns if turn.gather])
        self._issue(gathers, self.slots.trainer.storage.prefetch)
        if own.receives:
            self._receive(arrived[source])
        for turn in turns:
            if turn.gather:
                self._gather(gathers)
            self._turn(turn)
        if own.send:
            self._send(own, way)
            arrived[way, slot.stage, slot.microbatch] = self.links[way]
        return True

    def _receive(self, when: Quantity) -> None:
        """Wait for another stage; the host waits too (Megatron-LM synchronizes in its p2p_communication.py)."""
        idle = at_least(when - self.free, 0.0)
        self._drain(idle)
        self.free += idle
        self.host = at_least(self.host, self.free)

    def _send(self, own: Pass, way: str) -> None:
        """A link carries one transfer at a time."""
        self.links[way] = at_least(self.links.get(way, 0.0), self.free) + own.send

    def _turn(self, turn: Turn) -> None:
        """The device works and has to have been told; equal turns in a row are as one long one."""
        self.host += turn.host * turn.times
        done = self.free + turn.device * turn.times
        gap = at_least(self.host - done, 0.0)
        self.free = done + gap
        self.late += gap
        self._drain(self.slots.share * (turn.room * turn.times + gap))
        if turn.sums or turn.once:
            self._put(turn.sums)
            self.once += turn.once

    def _drain(self, seconds: Quantity) -> None:
        """Messages have the links for so long: those that go on first, then those due once a step."""
        if self.travels:
            left = self.queue - seconds
            self.queue = at_least(left, 0.0)
            self.once = at_least(self.once + (left - self.queue), 0.0)

    def _put(self, seconds: Quantity) -> None:
        self.queue += seconds
        self.issued += seconds
        self.travels = True

    # weights that are gathered

    def _issue(self, gathers: _Gathers, upto: int) -> None:
        for seconds in gathers.units[len(gathers.marks) : upto]:
            self._put(seconds)
            gathers.marks.append(self.issued)

    def _gather(self, gathers: _Gathers) -> None:
        """Wait for the next unit, and with it for all that was issued before it."""
        self._issue(gathers, gathers.at + self.slots.trainer.storage.prefetch + 1)
        behind = self.issued - gathers.marks[gathers.at]
        wait = at_least(self.queue - behind, 0.0)
        self.queue -= wait
        self.free += wait
        self.exposed += wait
        gathers.at += 1


@dataclass
class _Gathers:
    """Units that a slot gathers, in order."""

    units: Sequence[Quantity]
    marks: list[Quantity] = field(default_factory=list[Quantity])  # all that was issued with each
    at: int = 0
