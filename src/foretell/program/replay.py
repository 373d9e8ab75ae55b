"""Memory events played through: what is alive when, over one micro-batch on one stage.

Bodies are written once for all repetitions of a layer, and call tensors by the names of their block.
Played through in order, each name becomes one storage of one repetition.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from foretell.model.graph import Graph
from foretell.model.layers import Run
from foretell.program.action import Allocate, Free
from foretell.program.body import Body

Storage: TypeAlias = tuple[int, int, int, str]
"""Block, tensor, repetition, and what of it: '' for the tensor itself, 'gradient', 'gathered'."""


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
    twice: list[Storage] = field(default_factory=list[Storage])  # allocated while alive
    held: float = 0.0
    peak: float = 0.0

    def begin(self, name: Storage, size: float) -> None:
        if name in self.alive:
            self.twice.append(name)
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
    twice: tuple[Storage, ...]


def replay(graph: Graph, turns: Iterable[Turn], *, pipelined: bool = False) -> Replay:
    """Play the events of a stage for one micro-batch. In a pipeline outputs leave between the two passes."""
    turns = list(turns)
    memory = Memory()
    for turn in turns:
        for repetition in range(turn.run.first, turn.run.first + turn.run.times):
            _play(graph, turn.run.block, repetition, turn.forward, memory)
    kept, forward_peak = memory.held, memory.peak
    memory.peak = memory.held
    sent = _made_again(graph, turns, memory) if pipelined else {}
    for turn in reversed(turns):
        for repetition in reversed(range(turn.run.first, turn.run.first + turn.run.times)):
            _play(graph, turn.run.block, repetition, turn.backward, memory)
    left = {**sent, **memory.alive}
    return Replay(kept, forward_peak, memory.peak, memory.missing, left, tuple(memory.twice))


def _made_again(graph: Graph, turns: Iterable[Turn], memory: Memory) -> dict[Storage, float]:
    """Take out what is alive only to be sent: the layer that made it makes it again for its backward pass."""
    again = {
        storage(graph, turn.run.block, repetition, action.name)
        for turn in turns
        for repetition in range(turn.run.first, turn.run.first + turn.run.times)
        for action in turn.backward.actions
        if isinstance(action, Allocate)
    }
    sent = {name: size for name, size in memory.alive.items() if name in again}
    for name, size in sent.items():
        memory.end(name, size)
    return sent


def _play(graph: Graph, at: int, repetition: int, body: Body, memory: Memory) -> None:
    for action in body.actions:
        if isinstance(action, Allocate):
            memory.begin(storage(graph, at, repetition, action.name), action.bytes)
        elif isinstance(action, Free) and _now(graph, at, repetition, action.when):
            memory.end(storage(graph, at, repetition, action.name), action.bytes)


def _now(graph: Graph, at: int, repetition: int, when: str) -> bool:
    last = graph.blocks[at].times - 1
    return {"every": True, "first": repetition == 0, "last": repetition == last, "rest": repetition > 0}[when]


def storage(graph: Graph, at: int, repetition: int, name: str) -> Storage:
    """The storage that a block means by a name in one repetition."""
    first, _, rest = name.partition(" ")
    what = rest.rpartition(" ")[2]
    what = what if what in ("gradient", "gathered") else ""
    block, _, number = first.partition(".")
    if not block.isdigit():
        return at, -1, repetition, name  # the weights of a layer
    tensors = len(graph.blocks[at].tensors)
    index = tensors + int(number.removeprefix("import")) if number.startswith("import") else int(number)
    if what == "gradient":  # views of one tensor have gradients of their own
        return at, index, repetition, what
    return (*home(graph, at, index, repetition), what)


def home(graph: Graph, at: int, number: int, repetition: int) -> tuple[int, int, int]:
    """Follow imports and views to the (block, tensor, repetition) that owns the memory."""
    while True:
        block = graph.blocks[at]
        if number < len(block.tensors):
            owner = block.tensors[number].storage
            if owner == number:
                return at, number, repetition
            number = owner
            continue
        entry = block.imports[number - len(block.tensors)]
        if entry.carried >= 0 and repetition > 0:
            repetition, number = repetition - 1, entry.carried
        else:
            at, repetition, number = entry.block, entry.repetition, entry.tensor
