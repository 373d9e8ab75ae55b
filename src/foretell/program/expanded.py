"""The program: everything each kind of rank does in one step. Prices, timelines and checks start here.

It is stored as compactly as the model: a stage is a row of bodies with how often each is taken, a
rank's work a row of slots that name a stage, a micro-batch and a pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from foretell.model.layers import EqualLayers
from foretell.plan.schedule import Slot
from foretell.program.action import Communicate, Compute, TrafficKind
from foretell.program.body import Body
from foretell.summary import Summarized


class Layer(msgspec.Struct, frozen=True):
    """Equal layers in a row, or what lies between layers: both passes for one micro-batch."""

    name: str
    times: int
    forward: Body
    backward: Body
    run: EqualLayers  # the operators of the model that it stands for


class StageMemory(msgspec.Struct, frozen=True):
    """Bytes of a stage: those there for the whole step, and those of one micro-batch."""

    weights: float
    gradients: float
    states: float
    parameters: int  # as this rank computes with them
    trained: int  # those of them that have gradients
    updated: int  # whose states it holds
    kept: float  # activations of one micro-batch from its forward to its backward pass
    forward_peak: float  # most at once in its forward pass, what is kept included
    backward_peak: float


class Stage(msgspec.Struct, frozen=True):
    """One part of the pipeline, or all of the model."""

    part: int
    before: int  # the stage whose outputs it reads; -1: none
    after: int
    layers: tuple[Layer, ...]
    enter: Body  # before the first forward pass of a micro-batch
    leave: Body  # after it
    enter_back: Body  # before the backward pass
    leave_back: Body  # after it
    finish: Body  # once a step, after the last micro-batch
    memory: StageMemory

    def passes(self, kind: str) -> Iterator[tuple[Body, int]]:
        """The bodies of one slot in order, each with how often in a row. I and W share those of B: see `belongs`."""
        if kind == "F":
            yield self.enter, 1
            yield from ((layer.forward, layer.times) for layer in self.layers)
            yield self.leave, 1
        else:
            yield self.enter_back, 1
            yield from ((layer.backward, layer.times) for layer in reversed(self.layers))
            yield self.leave_back, 1


class RankKind(msgspec.Struct, frozen=True):
    """Ranks that do the same: one place on the pipeline, all places on the other axes."""

    place: int
    ranks: int
    stages: tuple[int, ...]
    slots: tuple[Slot, ...]


class Axis(msgspec.Struct, frozen=True):
    """One axis of the mesh: how many ranks, and how far apart they are."""

    name: str
    ranks: int
    stride: int
    waits: str = "all"  # whom a step waits for: all, those within a bound, nobody
    staleness: int = 0  # the bound
    divides: bool = True  # whether any operator is divided along it


class Traffic(NamedTuple):
    """Communications that are alike, over a step of one rank."""

    kind: str
    axes: tuple[str, ...]
    ranks: int
    what: str


class Total(msgspec.Struct, frozen=True):
    """How many of them, and bytes: contributed, and sent by the best algorithm."""

    count: float
    payload: float
    sent: float


class ExpandedProgram(Summarized, frozen=True):
    """One step under one plan."""

    model: str
    plan: str
    trainer: str
    batch: int
    microbatches: int
    axes: tuple[Axis, ...]
    stages: tuple[Stage, ...]
    kinds: tuple[RankKind, ...]
    notes: tuple[str, ...] = ()

    def summary(self) -> Iterator[tuple[str, str]]:
        yield "model", f"{self.model}, batch {self.batch:,} in {self.microbatches:,} micro-batches"
        yield "plan", self.plan
        yield "ranks", f"{self.ranks:,}, {len(self.stages)} pipeline stages, {len(self.kinds)} kinds of rank"

    @property
    def ranks(self) -> int:
        return sum(kind.ranks for kind in self.kinds)

    def walk(self, kind: RankKind) -> Iterator[tuple[Body, int, str]]:
        """The bodies that a rank of this kind runs in a step, with how often and in which slot kind."""
        counts = Counter((slot.stage, slot.kind) for slot in kind.slots)
        for (stage, slot), count in counts.items():
            for body, times in self.stages[stage].passes(slot):
                yield body, times * count, slot
        for stage in kind.stages:
            yield self.stages[stage].finish, 1, "finish"

    def communications(self, kind: RankKind) -> Iterator[tuple[Communicate, int]]:
        """What a rank of this kind sends and receives in a step, with how often."""
        for body, times, slot in self.walk(kind):
            for message in body.communications():
                if belongs(message, slot):
                    yield message, times

    def computations(self, kind: RankKind) -> Iterator[tuple[Compute, int]]:
        """What it computes in a step, with how often."""
        for body, times, slot in self.walk(kind):
            for action in body.computations():
                if belongs(action, slot):
                    yield action, times

    def traffic(self, kind: RankKind) -> dict[Traffic, Total]:
        """Communications of a step, alike ones added up."""
        found: dict[Traffic, Total] = {}
        for message, times in self.communications(kind):
            key = Traffic(message.kind, message.axes, message.ranks, message.what)
            old = found.get(key, Total(0, 0, 0))
            count = times / message.every
            found[key] = Total(
                old.count + count, old.payload + message.payload * count, old.sent + message.sent * times
            )
        return found


def belongs(action: Compute | Communicate, slot: str) -> bool:
    """Whether an action of a backward pass runs in this slot: weight gradients may come later, in W."""
    late = (
        action.part == "weight_gradient" if isinstance(action, Compute) else action.what == TrafficKind.WEIGHT_GRADIENTS
    )
    return late if slot == "W" else not late if slot == "I" else True
