"""The allocation trace of a stage: every storage that one micro-batch allocates and frees, in order, with its name.

Bodies are written once for all repetitions of a layer, and call tensors by the names of their block. Played through,
each name becomes one storage of one repetition. Which change allocates and which frees what does not depend on sizes:
a trace names sizes by number, and plans that differ only in sizes share it. The layers in the middle of a long run of
equal ones each add the same, so only the ends of the run are played.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple, TypeAlias

from foretell.model.graph import Graph
from foretell.model.layers import EqualLayers

Storage: TypeAlias = tuple[int, int, int, str]
"""Block, tensor, repetition, and what of it: '' for the tensor itself, or one of `PARTS`."""

PARTS = ("gradient", "gathered", "cast", "made", "blocks", "partial")
"""What of a tensor a name can mean: also a weight's copy in 16 bits, its own new gradient, a library's copies, and a
summand beside its sum."""

Size: TypeAlias = int
"""The number of a size: those of all events of all runs of a stage in a row, of each run forward, then backward."""

PLAYED = 4
"""Repetitions of a long run that are played: two at either end."""

HALF = PLAYED // 2


class MemoryEvent(NamedTuple):
    """An allocation or a free, in one pass of a kind of layer."""

    allocates: bool
    name: str
    when: str  # in which repetitions it frees
    new_gradient: bool = False  # of a weight: stays until the update, and has elements instead of bytes


class RunEvents(NamedTuple):
    """The events of both passes of the layers of a run."""

    run: EqualLayers
    forward: tuple[MemoryEvent, ...]
    backward: tuple[MemoryEvent, ...]


class Interval(NamedTuple):
    """Changes of one repetition of a run, during which its gathered weights stay and no new gradient appears."""

    run: int
    start: int
    stop: int
    opens: bool  # whether the repetition begins with it
    new_gradient: Size = -1  # the one that appears at its start; -1: none


class Changes(NamedTuple):
    """Allocations and frees in order: of which size, and of which storage."""

    sizes: tuple[int, ...]  # a size's number plus one where it is allocated, and less than zero where it is freed
    storages: tuple[Storage, ...]

    def play(self, alive: dict[Storage, Size], stop: int | None = None) -> dict[Storage, Size]:
        """What is alive after the changes before `stop`, from what was alive before them."""
        alive = dict(alive)
        for change, storage in zip(self.sizes[:stop], self.storages[:stop], strict=True):
            if change > 0:
                alive[storage] = change - 1
            else:
                del alive[storage]
        return alive


class PassTrace(NamedTuple):
    """One pass. `marks`: where the two repetitions around the middle of a long run begin, and where the second ends."""

    changes: Changes
    marks: tuple[int, int, int]
    intervals: tuple[Interval, ...]


class AllocationTrace(NamedTuple):
    """One micro-batch on one stage, forward and back."""

    forward: PassTrace
    sent: Changes  # what leaves between the passes
    backward: PassTrace
    long: int  # the run of which only the ends are played; -1: none
    missing: dict[Storage, Size]  # freed, but allocated by another stage
    left: dict[Storage, Size]  # allocated, but freed by another stage
    twice: dict[Storage, Size]  # allocated while it is alive

    @property
    def kept(self) -> dict[Storage, Size]:
        """What is alive between the passes."""
        return self.sent.play(self.forward.changes.play({}))


def allocation_trace(graph: Graph, stage: Sequence[RunEvents], long: bool, pipelined: bool) -> AllocationTrace:
    """Play the events of a stage; `long`: only the ends of its longest run.

    In a pipeline, what other stages allocated is there from the start (it was received), and what nobody frees leaves
    after the forward pass (it is sent); gradients the other way round.
    """
    player = _Player(graph, stage, long)
    trace = player.play({}, {})
    if not pipelined or not (trace.missing or trace.left or trace.twice):
        return trace
    sent = {**trace.left, **trace.twice}  # a layer that runs again makes once more what it sent
    return _Player(graph, stage, long).play(trace.missing, sent)._replace(missing=trace.missing, left=sent)


def longest(runs: Iterable[EqualLayers]) -> int:
    """The place of the longest run."""
    return max(enumerate(runs), key=lambda found: found[1].times)[0]


class _Player:
    """Plays events by the names of storages, and writes down what changes."""

    def __init__(self, graph: Graph, stage: Sequence[RunEvents], long: bool) -> None:
        self.graph, self.stage = graph, stage
        self.long = longest(events.run for events in stage) if long else -1
        self.alive: dict[Storage, Size] = {}
        self.missing: dict[Storage, Size] = {}
        self.twice: dict[Storage, Size] = {}
        self.changes: list[tuple[int, Storage]] = []
        self.first_size = list(accumulate((len(e.forward) + len(e.backward) for e in stage), initial=0))
        if long:
            run = stage[self.long].run
            self.middle, self.left_out = run.first + HALF, run.times - PLAYED

    def play(self, received: dict[Storage, Size], sent: dict[Storage, Size]) -> AllocationTrace:
        self._receive(received, gradients=False)
        forward = self._pass(range(len(self.stage)), 1)
        for storage in sent:
            if storage[3] != "gradient" and storage in self.alive:
                self._free(storage, 0)
        leaves = self._taken()
        self._receive(received, gradients=True)
        backward = self._pass(reversed(range(len(self.stage))), -1)
        left = {storage: size for storage, size in self.alive.items() if storage[3] != "made"}  # till the update
        return AllocationTrace(forward, leaves, backward, self.long, self.missing, left, self.twice)

    def _receive(self, received: dict[Storage, Size], gradients: bool) -> None:
        for storage, size in received.items():
            if (storage[3] == "gradient") == gradients:
                self._allocate(storage, size)

    def _taken(self) -> Changes:
        """The changes so far, which begin anew."""
        changes, self.changes = self.changes, []
        return Changes(tuple(size for size, _ in changes), tuple(storage for _, storage in changes))

    def _pass(self, order: Iterable[int], way: int) -> PassTrace:
        marks: list[int] = []
        intervals: list[Interval] = []
        for at in order:
            run = self.stage[at].run
            repetitions: Sequence[int] = range(run.first, run.first + run.times)
            if at == self.long:
                repetitions = [*repetitions[:HALF], *repetitions[-HALF:]]
            for place, repetition in enumerate(repetitions[::way]):
                if at == self.long and place >= HALF - 1:
                    marks.append(len(self.changes))
                intervals += self._repetition(at, repetition, way)
        return PassTrace(self._taken(), (marks[0], marks[1], marks[2]) if marks else (0, 0, 0), tuple(intervals))

    def _repetition(self, at: int, repetition: int, way: int) -> Iterator[Interval]:
        """One pass of one layer."""
        run, forward, backward = self.stage[at]
        events, size = (forward, 0) if way > 0 else (backward, len(forward))
        begun = Interval(at, len(self.changes), len(self.changes), opens=True)
        for number, event in enumerate(events, self.first_size[at] + size):
            if event.new_gradient:
                storage = self._storage(run.block, repetition, event.name)
                if storage not in self.alive:  # else it is added to that of another use of the weight
                    yield begun._replace(stop=len(self.changes))
                    self._allocate(storage, number)
                    begun = Interval(at, len(self.changes), len(self.changes), opens=False, new_gradient=number)
            elif event.allocates:
                self._allocate(self._storage(run.block, repetition, event.name), number)
            elif happens(self.graph, run.block, repetition, event.when):
                self._free(self._storage(run.block, repetition, event.name), number)
        yield begun._replace(stop=len(self.changes))

    def _allocate(self, storage: Storage, size: Size) -> None:
        if storage in self.alive:
            self.twice[storage] = size
            return
        self.alive[storage] = size
        self.changes.append((size + 1, storage))

    def _free(self, storage: Storage, size: Size) -> None:
        if storage in self.alive:
            self.changes.append((-self.alive.pop(storage) - 1, storage))
        else:
            self.missing[storage] = size

    def _storage(self, at: int, repetition: int, name: str) -> Storage:
        """Repetitions after the middle of the long run follow at once on those before it."""
        found = storage_of(self.graph, at, repetition, name)
        if self.long < 0 or found[0] != self.stage[self.long].run.block or found[2] < self.middle:
            return found
        block, number, repetition, what = found
        return block, number, max(self.middle - 1, repetition - self.left_out), what


def happens(graph: Graph, at: int, repetition: int, when: str) -> bool:
    """Whether something that is so in some repetitions of a block is so in this one."""
    if when == "every":
        return True
    if when == "last":
        return repetition == graph.blocks[at].times - 1
    return repetition == 0 if when == "first" else repetition > 0


def storage_of(graph: Graph, at: int, repetition: int, name: str) -> Storage:
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
