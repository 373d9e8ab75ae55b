"""Memory events played through: what is alive when, over one micro-batch on one stage.

Bodies are written once for all repetitions of a layer, and call tensors by the names of their block.
Played through in order, each name becomes one storage of one repetition.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from foretell.model.graph import Graph
from foretell.model.layers import Run
from foretell.program.action import Allocate, Free
from foretell.program.body import Body

Storage: TypeAlias = tuple[int, int, int, str]
"""Block, tensor, repetition, and what of it: '' for the tensor itself, 'gradient', 'gathered'."""


PARTS = ("gradient", "gathered", "cast", "made")
"""What of a tensor a name can mean: also a weight's copy in 16 bits, and its own new gradient."""


class Turn(NamedTuple):
    """The bodies of a run of layers."""

    run: Run
    forward: Body
    backward: Body


@dataclass
class Memory:
    """What is alive, and what went wrong."""

    alive: dict[Storage, float] = field(default_factory=dict[Storage, float])
    missing: dict[Storage, float] = field(default_factory=dict[Storage, float])  # freed, but never allocated here
    twice: dict[Storage, float] = field(default_factory=dict[Storage, float])  # allocated while alive
    held: float = 0.0
    peak: float = 0.0

    def begin(self, name: Storage, size: float) -> None:
        if name in self.alive:
            self.twice[name] = size
            return
        self.alive[name] = size
        self.held += size
        self.peak = max(self.peak, self.held)

    def end(self, name: Storage, size: float) -> None:
        if name in self.alive:
            self.held -= self.alive.pop(name)
        else:
            self.missing[name] = size


class Replay(NamedTuple):
    """One micro-batch forward and back on one stage."""

    kept: float  # bytes from the forward to the backward pass
    forward_peak: float
    backward_peak: float
    missing: dict[Storage, float]
    left: dict[Storage, float]
    twice: dict[Storage, float]


NOTHING: Final = Replay(0.0, 0.0, 0.0, {}, {}, {})


def replay(graph: Graph, turns: Iterable[Turn], *, pipelined: bool = False) -> Replay:
    """Play the events of a stage for one micro-batch.

    In a pipeline, what others allocated is there from the start (it was received), and what nobody
    frees leaves after the forward pass (it is sent); gradients the other way round.
    """
    turns = list(turns)
    found = _replayed(graph, turns, {}, {})
    if not pipelined or not (found.missing or found.left or found.twice):
        return found
    sent = {**found.left, **found.twice}  # a layer that runs again makes once more what it sent
    again = _replayed(graph, turns, found.missing, sent)
    return again._replace(missing=found.missing, left=sent)


def _replayed(graph: Graph, turns: list[Turn], come: Mapping[Storage, float], go: Mapping[Storage, float]) -> Replay:
    memory = Memory()
    for name, size in come.items():
        if name[3] != "gradient":
            memory.begin(name, size)
    for turn in turns:
        for repetition in range(turn.run.first, turn.run.first + turn.run.times):
            _play(graph, turn.run.block, repetition, turn.forward, memory)
    forward_peak = memory.peak
    for name, size in go.items():
        if name[3] != "gradient" and name in memory.alive:
            memory.end(name, size)
    kept = memory.held
    memory.peak = memory.held
    for name, size in come.items():
        if name[3] == "gradient":
            memory.begin(name, size)
    for turn in reversed(turns):
        for repetition in reversed(range(turn.run.first, turn.run.first + turn.run.times)):
            _play(graph, turn.run.block, repetition, turn.backward, memory)
    return Replay(kept, forward_peak, memory.peak, memory.missing, dict(memory.alive), memory.twice)


def _play(graph: Graph, at: int, repetition: int, body: Body, memory: Memory) -> None:
    for action in body.actions:
        if isinstance(action, Allocate):
            memory.begin(storage(graph, at, repetition, action.name), action.bytes)
        elif isinstance(action, Free) and happens(graph, at, repetition, action.when):
            memory.end(storage(graph, at, repetition, action.name), action.bytes)


def happens(graph: Graph, at: int, repetition: int, when: str) -> bool:
    """Whether something that is so in some repetitions of a block is so in this one."""
    if when == "every":
        return True
    if when == "last":
        return repetition == graph.blocks[at].times - 1
    return repetition == 0 if when == "first" else repetition > 0


def storage(graph: Graph, at: int, repetition: int, name: str) -> Storage:
    """The storage that a block means by a name in one repetition."""
    number, imported, what = _meant(name)
    if number < 0:
        return at, -1, repetition, name  # the weights of a layer
    index = len(graph.blocks[at].tensors) + number if imported else number
    if what == "gradient":  # views of one tensor have gradients of their own
        return at, index, repetition, what
    return (*graph.home(at, index, repetition), what)


@functools.lru_cache(maxsize=65536)
def _meant(name: str) -> tuple[int, bool, str]:
    """Number of a tensor (-1: of none), whether it is imported, and what of it a name means."""
    first, _, rest = name.partition(" ")
    what = rest.rpartition(" ")[2]
    block, _, number = first.partition(".")
    if not block.isdigit():
        return -1, False, ""
    imported = number.startswith("import")
    return int(number.removeprefix("import")), imported, what if what in PARTS else ""
