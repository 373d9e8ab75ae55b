# pyright: basic
"""A pipeline in the order of our own schedules, slot by slot: those that torch lacks, or that break off in some of its
versions. What a slot is, and which stages a micro-batch goes through, is said by the schedule (`plan/schedules`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from foretell.plan.facts import facts
from foretell.plan.schedule import Slot, find
from foretell.plan.strategies.data import Data
from foretell.plan.strategies.pipeline import Pipeline
from foretell.runtime.appliers._half_passes import InFlight, Owed, Passes
from foretell.runtime.appliers._line import SENDING, Like, Stream, let_go, like, several
from foretell.runtime.appliers._master import ScaledGradient
from foretell.runtime.clock import Clock
from foretell.runtime.subject import Subject, cut
from foretell.runtime.tasks import Batch


class PlayedPipeline:
    """The driver of one rank, which has the stages `own`.

    `entering` says what stages read, where the ranks that make it are not there to say so.
    """

    def __init__(
        self, subject: Subject, part: Pipeline, own: list[int], entering: Mapping[int, Sequence[Like]] | None = None
    ) -> None:
        self.entering = entering or {}
        trains = facts(subject.setting.graph).trains
        self.schedule = find(part.schedule) if trains else find(part.schedule).forward_only()
        self.count = subject.setting.plan.microbatches
        self.ranks, self.chunks = part.ranks, part.chunks or self.schedule.least_chunks
        orders = self.schedule.order(self.ranks, self.count, self.chunks)
        self.slots = orders[subject.mesh.place("pp")]
        self.turn_of = [{_pass(slot): at for at, slot in enumerate(order)} for order in orders]  # of each rank
        self.through = [-1] * self.ranks  # the last turn of each other rank that it is known to have begun
        self.unread: deque[_Unread] = deque()
        data = subject.setting.plan.axis(Data)
        stay = data is not None and data.storage == "zero2"
        self.passes = {at: Passes(module, stay) for at, module in zip(own, subject.parts, strict=True)}
        self.loss = subject.loss
        # stages whose numbers are as many ranks apart have other neighbours, or the same ones the other way round
        self.forwards = [Stream(subject) for _ in range(self.chunks)]
        self.backwards = [Stream(subject) for _ in range(self.chunks)]
        self.flying: dict[tuple[int, int], InFlight] = {}
        self.owed: dict[tuple[int, int], Owed] = {}
        self.here: dict[tuple[str, int, int], list[torch.Tensor]] = {}  # from stage to stage of this rank
        self.turns: dict[str, Callable[[Slot, Batch, Clock], None]] = {
            "F": self._forward,
            "B": self._backward,
            "I": self._first_half,
            "W": self._second_half,
        }

    def run(self, batch: Batch, clock: Clock) -> list[torch.Tensor]:
        self.losses: list[torch.Tensor] = []
        with clock.between_phases("bubble"):
            for passes in self.passes.values():
                passes.begin()
            for slot in self.slots:
                self.turns[slot.kind](slot, batch, clock)
            if not self.schedule.forward:
                with clock.phase("backward"):
                    for passes in self.passes.values():
                        passes.end()
            self.unread.clear()
            self.through = [-1] * self.ranks
            let_go()
        return self.losses

    # slots

    def _forward(self, slot: Slot, batch: Batch, clock: Clock) -> None:
        mine = cut(batch, slot.microbatch, self.count)
        inputs = list(mine.inputs) if self._is_first(slot) else self._entering(slot)
        with clock.phase("forward"):
            made = self.passes[slot.stage].forward(inputs)
            if self._is_last(slot):
                made = ScaledGradient.apply(self.loss(made, mine.target), 1 / self.count)
                self.losses.append(made.detach())
            outputs = [one.clone() if one._is_view() else one for one in several(made)]  # half a pass detaches in place
        if not self.schedule.forward:
            self.flying[slot.stage, slot.microbatch] = InFlight(inputs, outputs)
        if not self._is_last(slot):
            self._hand_on(slot, outputs)

    def _backward(self, slot: Slot, batch: Batch, clock: Clock) -> None:
        flight, gradients = self._coming_back(slot)
        with clock.phase("backward"):
            found = self.passes[slot.stage].backward(flight, gradients)
        self._hand_back(slot, found)

    def _first_half(self, slot: Slot, batch: Batch, clock: Clock) -> None:
        flight, gradients = self._coming_back(slot)
        with clock.phase("backward"):
            found, owed = self.passes[slot.stage].first_half(flight, gradients)
        self.owed[slot.stage, slot.microbatch] = owed
        self._hand_back(slot, found)

    def _second_half(self, slot: Slot, batch: Batch, clock: Clock) -> None:
        with clock.phase("backward"):
            self.passes[slot.stage].second_half(self.owed.pop((slot.stage, slot.microbatch)))

    # from stage to stage

    def _path(self, slot: Slot) -> range:
        return self.schedule.path(slot.microbatch, self.ranks, self.count, self.chunks)

    def _is_first(self, slot: Slot) -> bool:
        return slot.stage == self._path(slot)[0]

    def _is_last(self, slot: Slot) -> bool:
        return slot.stage == self._path(slot)[-1]

    def _rank(self, stage: int) -> int:
        return self.schedule.rank_of(stage, self.ranks, self.chunks)

    def _entering(self, slot: Slot) -> list[torch.Tensor]:
        before = slot.stage - 1
        if before in self.passes:
            return self.here.pop(("F", *slot[1:]))
        found = self.forwards[before // self.ranks].crossing(self._rank(before), self.entering.get(slot.stage, ()))
        self._heard(("F", before, slot.microbatch))
        return found

    def _hand_on(self, slot: Slot, outputs: list[torch.Tensor]) -> None:
        after = slot.stage + 1
        if after in self.passes:
            found = [one.detach().requires_grad_(one.requires_grad) for one in outputs]
            self.here["F", after, slot.microbatch] = found
        else:
            self.forwards[slot.stage // self.ranks].hand_on(outputs, self._rank(after))
            self._said(("F", after, slot.microbatch))

    def _coming_back(self, slot: Slot) -> tuple[InFlight, list[Any]]:
        """What a stage made, with the gradients of it."""
        flight, after = self.flying.pop((slot.stage, slot.microbatch)), slot.stage + 1
        if self._is_last(slot):
            return flight, [None]
        if after in self.passes:
            return flight, self.here.pop(("B", *slot[1:]))
        likes = [like(one) for one in flight.heads]
        found = self.backwards[slot.stage // self.ranks].received(likes, self._rank(after))
        self._heard(("B", after, slot.microbatch))
        return flight, found

    def _hand_back(self, slot: Slot, gradients: list[torch.Tensor]) -> None:
        before = slot.stage - 1
        if self._is_first(slot):
            return
        if before in self.passes:
            self.here["B", before, slot.microbatch] = gradients
        else:
            self.backwards[before // self.ranks].send(gradients, self._rank(before))
            self._said(("B", before, slot.microbatch))

    # what is on its way

    def _said(self, read: tuple[str, int, int]) -> None:
        """Something was sent that a pass of another rank reads."""
        rank = self._rank(read[1])
        values = len(SENDING) - sum(one.values for one in self.unread)
        self.unread.append(_Unread(rank, self.turn_of[rank][read], values))

    def _heard(self, made: tuple[str, int, int]) -> None:
        """Another rank has done this pass: what it read until then is there, and need not be kept any longer."""
        rank = self._rank(made[1])
        self.through[rank] = max(self.through[rank], self.turn_of[rank][made])
        while self.unread and self.unread[0].turn <= self.through[self.unread[0].rank]:
            let_go(len(SENDING) - self.unread.popleft().values)


class _Unread(NamedTuple):
    """Values that were sent together, and whose turn reads them."""

    rank: int
    turn: int
    values: int


def _pass(slot: Slot) -> tuple[str, int, int]:
    """What a slot sends; half a backward pass sends what a whole one does."""
    return ("B" if slot.kind == "I" else slot.kind, slot.stage, slot.microbatch)
