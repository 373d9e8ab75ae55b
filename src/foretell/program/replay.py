"""Memory events played through: what is alive when, over one micro-batch on one stage.

Bodies are written once for all repetitions of a layer, and call tensors by the names of their block.
Played through in order, each name becomes one storage of one repetition.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
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
        elif isinstance(action, Free) and _now(graph, at, repetition, action.when):
            memory.end(storage(graph, at, repetition, action.name), action.bytes)


def _now(graph: Graph, at: int, repetition: int, when: str) -> bool:
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
    return int(number.removeprefix("import")), imported, what if what in ("gradient", "gathered") else ""


# Many equal layers. ----------------------------------------------------------------------------------


class Passes(NamedTuple):
    """Bytes of one micro-batch on one stage: between its passes, and at most in each."""

    kept: float
    forward_peak: float
    backward_peak: float


PLAYED = 4
"""Repetitions of a long run that are played: two at either end. Those between add the same each."""


class Profile(NamedTuple):
    """The passes of a stage whose longest run has `PLAYED` repetitions, and what each one more adds."""

    kept: float
    each: float
    forward: tuple[float, float]  # the most before the middle of the run, and after it
    backward: tuple[float, float]

    def passes(self, times: int) -> Passes:
        more = self.each * max(0, times - PLAYED)
        before, after = self.backward
        return Passes(self.kept + more, max(self.forward[0], self.forward[1] + more), max(before + more, after))


def profile(graph: Graph, turns: Sequence[Turn], *, pipelined: bool) -> Profile | None:
    """The profile of a stage with a long run; None where its layers do not all add the same."""
    long = longest(turn.run for turn in turns)
    found = _Long(graph, turns, long, {}, {}).play()
    if found is None or not pipelined or not (found.missing or found.left or found.twice):
        return found and found.profile
    again = _Long(graph, turns, long, found.missing, {**found.left, **found.twice}).play()
    return again and again.profile


def longest(runs: Iterable[Run]) -> int:
    """The place of the longest run."""
    return max(enumerate(runs), key=lambda found: found[1].times)[0]


class _Played(NamedTuple):
    profile: Profile
    missing: dict[Storage, float]
    left: dict[Storage, float]
    twice: dict[Storage, float]


class _Long:
    """A stage played through with the middle of its longest run left out."""

    def __init__(
        self,
        graph: Graph,
        turns: Sequence[Turn],
        long: int,
        come: Mapping[Storage, float],
        go: Mapping[Storage, float],
    ) -> None:
        self.graph, self.turns, self.long, self.come, self.go = graph, turns, long, come, go
        run = turns[long].run
        self.left_out = run.times - PLAYED
        self.middle = run.first + PLAYED // 2  # the first repetition that is not played
        self.memory = Memory()

    def play(self) -> _Played | None:
        memory = self.memory
        self._begin("")
        up = self._pass(range(len(self.turns)), lambda turn: turn.forward, 1)
        for name, size in self.go.items():
            if name[3] != "gradient" and name in memory.alive:
                memory.end(name, size)
        kept, memory.peak = memory.held, memory.held
        self._begin("gradient")
        down = self._pass(reversed(range(len(self.turns))), lambda turn: turn.backward, -1)
        if up is None or down is None or up[0] != -down[0]:
            return None
        found = Profile(kept, up[0], up[1:], down[1:])
        return _Played(found, memory.missing, dict(memory.alive), memory.twice)

    def _begin(self, what: str) -> None:
        for name, size in self.come.items():
            if (name[3] == "gradient") == (what == "gradient"):
                self.memory.begin(name, size)

    def _pass(self, order: Iterable[int], body: Callable[[Turn], Body], way: int) -> tuple[float, float, float] | None:
        """What a layer of the long run adds, and the peaks before and after its middle; None if layers differ."""
        added, first = 0.0, 0.0
        for at in order:
            turn = self.turns[at]
            repetitions = range(turn.run.first, turn.run.first + turn.run.times)
            if at != self.long:
                for repetition in repetitions[::way]:
                    self._play(turn.run.block, repetition, body(turn))
                continue
            half = PLAYED // 2
            ends = [*repetitions[:half], *repetitions[-half:]][::way]
            changes: list[float] = []
            for place, repetition in enumerate(ends):
                if place == half:
                    first, self.memory.peak = self.memory.peak, self.memory.held
                held = self.memory.held
                self._play(turn.run.block, repetition, body(turn))
                changes.append(self.memory.held - held)
            if changes[half - 1] != changes[half]:  # neighbours of the middle, on either side
                return None
            added = changes[half]
        return added, first, self.memory.peak

    def _play(self, at: int, repetition: int, body: Body) -> None:
        for action in body.actions:
            if isinstance(action, Allocate):
                self.memory.begin(self._named(at, repetition, action.name), action.bytes)
            elif isinstance(action, Free) and _now(self.graph, at, repetition, action.when):
                self.memory.end(self._named(at, repetition, action.name), action.bytes)

    def _named(self, at: int, repetition: int, name: str) -> Storage:
        """Repetitions after the middle follow at once on those before it."""
        block, number, repetition, what = storage(self.graph, at, repetition, name)
        if block == self.turns[self.long].run.block and repetition >= self.middle:
            repetition = max(self.middle - 1, repetition - self.left_out)
        return block, number, repetition, what
