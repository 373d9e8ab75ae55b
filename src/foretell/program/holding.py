"""What a micro-batch holds on a stage, for any sizes: the events of memory as a script of signed sizes.

Which event begins and which ends what does not depend on sizes. So a stage is played through once (by names, as
`replay` does), and written down as a row of sizes that come and go: sums of it give what is held when. The layers
in the middle of a long run of equal ones add the same each, so only its ends are played.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import add
from typing import Any, NamedTuple, TypeAlias, cast

from foretell.model.graph import Graph
from foretell.model.layers import Run
from foretell.program.replay import Storage, happens, storage
from foretell.units import Quantity, at_least, somewhere, whole_numbers


class Passes(NamedTuple):
    """Bytes of one micro-batch on one stage: between its passes, and at most in each."""

    kept: Quantity
    forward_peak: Quantity
    backward_peak: Quantity
    making_peak: Quantity  # in the backward pass, with the gradients of weights that it has made so far


class Event(NamedTuple):
    """Memory that begins or ends, in one pass of a kind of layer."""

    begins: bool
    name: str
    when: str  # in which repetitions it ends
    makes: bool = False  # the gradient of a weight, which has no bytes among the sizes


class Events(NamedTuple):
    """The events of both passes of the layers of a run."""

    run: Run
    forward: tuple[Event, ...]
    backward: tuple[Event, ...]


PLAYED = 4
"""Repetitions of a long run that are played: two at either end."""

HALF = PLAYED // 2

Size: TypeAlias = int
"""The number of a size: those of all events of all runs in a row, forward and backward."""


class Stretch(NamedTuple):
    """Changes of one repetition of a run: while they happen its weights are gathered, and no new gradient is made."""

    run: int
    start: int
    stop: int
    opens: bool  # whether the repetition begins with it
    made: int = -1  # the number of the size of the gradient that is made at its start; -1: none


class Pass(NamedTuple):
    """One pass: sizes that begin (plus one, the number of a size, above zero) or end (below it), in order.

    Of a stage with a long run also where the two repetitions around its middle begin, and where the second ends.
    """

    changes: tuple[int, ...]
    marks: tuple[int, int, int]
    stretches: tuple[Stretch, ...]

    def fullest(self, heights: Heights, elements: Sequence[float], long: bool) -> Fullest:
        """What is held at most in each stretch."""
        middle = sum(one.stop <= self.marks[1] for one in self.stretches) if long else len(self.stretches)
        made = accumulate(elements[one.made] if one.made >= 0 else 0.0 for one in self.stretches)
        return Fullest(self.stretches, _most_of(self.stretches, heights), tuple(made), middle)


class Fullest(NamedTuple):
    """What is held at most in each stretch of a pass."""

    stretches: tuple[Stretch, ...]
    most: SizeTable
    made: tuple[float, ...]  # elements of the gradients that were made until then
    middle: int  # the first stretch behind the middle of the long run

    def halves(self, raised: Sequence[float] = ()) -> Halves:
        """The most before the middle of the long run and after it, with so much more in each stretch."""
        if not raised:
            whole: Any = self.most
        elif hasattr(self.most, "shape"):
            import numpy

            whole = self.most + numpy.array(raised)[:, None]
        else:
            whole = [size + more for size, more in zip(self.most, raised, strict=True)]
        after = whole[self.middle :]
        return _most(whole[: self.middle]), _most(after) if len(after) else 0.0


class Script(NamedTuple):
    """Both passes, and what leaves between them."""

    forward: Pass
    between: tuple[int, ...]
    backward: Pass
    long: int  # the run of which only the ends are played; -1: none

    def profile(self, sizes: SizeTable, elements: Sequence[float], runs_back: Sequence[bool]) -> Profile | None:
        """What is held, of these sizes; None where the layers of the long run do not all add the same.

        `elements` of new gradients are at the places of their sizes; `runs_back`: which runs have a backward pass.
        """
        up = _heights(self.forward.changes, sizes, 0.0)
        kept = _heights(self.between, sizes, up[-1])[-1]
        down = _heights(self.backward.changes, sizes, kept)
        ahead = self.forward.fullest(up, elements, self.long >= 0)
        back = self.backward.fullest(down, elements, self.long >= 0)
        if self.long < 0:
            return Profile(kept, 0.0, 0.0, ahead, back, self.long, tuple(runs_back))
        (a, b, c), (d, e, f) = self.forward.marks, self.backward.marks
        added, new, next_new = up[b] - up[a], self._made(d, e, elements), self._made(e, f, elements)
        same = (up[c] - up[b], down[d] - down[e], down[e] - down[f])
        if new != next_new or any(somewhere(other - added) for other in same):
            return None
        return Profile(kept, added, new, ahead, back, self.long, tuple(runs_back))

    def _made(self, start: int, stop: int, elements: Sequence[float]) -> float:
        """Elements of the gradients that changes of the backward pass make."""
        return sum(elements[one - 1] for one in self.backward.changes[start:stop] if one > 0)


@dataclass(frozen=True)
class Profile:
    """The passes of a stage whose longest run has `PLAYED` repetitions, and what each one more adds."""

    kept: Quantity
    each: Quantity
    new: float  # elements of gradients that each one more makes
    forward: Fullest
    backward: Fullest
    long: int  # the run that may be longer; -1: none
    runs_back: tuple[bool, ...]

    def passes(self, times: Quantity, gathered: tuple[float, ...], reshards: bool, gradient: float) -> Passes:
        """What is held with so many repetitions, weights that are gathered for them included.

        Gathered weights are let go between the passes if it `reshards`. `gradient` is bytes of each parameter's.
        """
        if not gathered and not gradient and self.long < 0:
            return self._short
        ahead, back = self._alone
        raised, rising, resting, each = self._gathered(gathered, reshards) if gathered else _NOTHING
        if gathered:
            ahead, back = self.forward.halves(raised), self.backward.halves(rising)
        making = back
        if gradient:
            grown = [elements * gradient for elements in self.backward.made]
            making = self.backward.halves([*map(add, rising, grown)] if gathered else grown)
        left_out = at_least(times - PLAYED, 0)
        more = (self.each + each) * left_out
        return Passes(
            self.kept + resting + more,
            at_least(ahead[0], ahead[1] + more),
            at_least(back[0] + more, back[1]),
            at_least(making[0] + more, making[1] + self.new * gradient * left_out),
        )

    @functools.cached_property
    def _alone(self) -> tuple[Halves, Halves]:
        """Both passes without weights that are gathered."""
        return self.forward.halves(), self.backward.halves()

    @functools.cached_property
    def _short(self) -> Passes:
        """What is held where no run may be longer, nothing is gathered and no gradient is new."""
        ahead, back = (at_least(*halves) for halves in self._alone)
        return Passes(self.kept, ahead, back, back)

    def _gathered(self, sizes: tuple[float, ...], reshards: bool) -> Gathered:
        ahead, back = self.forward.stretches, self.backward.stretches
        if reshards:  # frozen layers with nothing trained before them gather nothing on the way back
            again = [size if runs else 0.0 for size, runs in zip(sizes, self.runs_back, strict=True)]
            return Gathered([sizes[one.run] for one in ahead], [again[one.run] for one in back], 0.0, 0.0)
        begun = [*accumulate(sizes[one.run] * one.opens for one in ahead)]
        over = accumulate(sizes[one.run] * one.opens for one in back)  # this one included, which is still at work
        left = [begun[-1] - gone + sizes[one.run] for gone, one in zip(over, back, strict=True)]
        return Gathered(begun, left, begun[-1], sizes[self.long] if self.long >= 0 else 0.0)


Halves: TypeAlias = tuple[Quantity, Quantity]
"""The most that is held before the middle of the long run, and after it."""


class Gathered(NamedTuple):
    """Bytes of gathered weights: in each stretch of both passes, between these, and of each repetition more."""

    forward: list[float]
    backward: list[float]
    resting: float
    each: float


_NOTHING = Gathered([], [], 0.0, 0.0)


Heights: TypeAlias = Any
"""What is held before and after each change: a list, or an array with a row for each."""

SizeTable: TypeAlias = Any
"""Sizes: a list, or an array with a row for each where they are for several numbers of samples."""


def size_table(sizes: Sequence[Quantity], samples: Quantity) -> SizeTable:
    """Sizes for a number of samples, or for each of several."""
    if isinstance(samples, int):
        return list(sizes)
    import numpy

    found = numpy.empty((len(sizes), len(samples)))
    for at, size in enumerate(sizes):
        found[at] = size
    return found


def joined_tables(tables: Sequence[SizeTable]) -> SizeTable:
    """The sizes of several tables in one."""
    if isinstance(tables[0], list):
        return [size for table in tables for size in table]
    import numpy

    return numpy.concatenate(tables)


def _heights(changes: tuple[int, ...], sizes: SizeTable, start: Quantity) -> Any:
    """What is held before and after each change."""
    if isinstance(sizes, list):
        numbers = cast("list[float]", sizes)
        return list(accumulate((numbers[c - 1] if c > 0 else -numbers[-c - 1] for c in changes), initial=start))
    import numpy

    places, signs = _signed(changes)
    found = numpy.empty((len(changes) + 1, sizes.shape[1]))
    found[0] = start
    numpy.multiply(sizes[places], signs, out=found[1:])
    return numpy.cumsum(found, axis=0)


@functools.lru_cache(maxsize=4096)
def _signed(changes: tuple[int, ...]) -> tuple[Any, Any]:
    """The numbers of sizes that change, and whether each is added or taken away."""
    import numpy

    found = numpy.array(changes, dtype=numpy.int64)
    return numpy.abs(found) - 1, numpy.sign(found)[:, None].astype(float)


def _most(heights: Heights) -> Quantity:
    return heights.max(axis=0) if hasattr(heights, "max") else max(heights)


def _most_of(stretches: Sequence[Stretch], heights: Heights) -> SizeTable:
    """The largest of the heights of each stretch, its ends included."""
    if not hasattr(heights, "shape"):
        return [max(heights[one.start : one.stop + 1]) for one in stretches]
    import numpy

    ends = [end for one in stretches for end in (one.start, one.stop + 1)]
    padded = numpy.concatenate([heights, heights[-1:]])  # an end may be one after the last
    return numpy.maximum.reduceat(padded, ends)[::2]


class StageRuns:
    """The runs of layers of a stage, and what is asked of them for every local program."""

    def __init__(self, graph: Graph, runs: tuple[Run, ...]) -> None:
        self.runs = runs
        long = longest(runs) if runs else -1
        self.times = runs[long].times if runs else 0
        self.layers = sum(run.times for run in runs if run.layer)
        self.stackable = self.times > PLAYED and bool(runs[long].layer)
        self.alike = tuple(
            (
                run[:3],
                min(run.times, PLAYED + 1) if at == long else run.times,
                run.first == 0,
                run.first + run.times == graph.blocks[run.block].times,
            )
            for at, run in enumerate(runs)
        )
        """Stages that hold the same; the longest run is told apart by what it has at least."""
        self.inputs = _inputs(graph, runs)
        between = tuple(run for run in runs if not run.layer)
        self.between = self if between == runs else StageRuns(graph, between)


class StackedRuns:
    """Stages that are alike but for how often their longest run, of layers, repeats: for each number a row."""

    def __init__(self, one: StageRuns, times: Sequence[int]) -> None:
        self.runs, self.alike, self.inputs, self.between = one.runs, one.alike, one.inputs, one.between
        self.times = whole_numbers(times)[:, None]
        self.layers = self.times + (one.layers - one.times)


class Uneven(Exception):
    """The layers of a long run do not all add the same, so stages of more of them cannot be told from a few."""


def _inputs(graph: Graph, runs: Iterable[Run]) -> frozenset[tuple[int, int]]:
    """The samples that a stage is given: tensors of the first block, which none of its layers makes."""
    found: set[tuple[int, int]] = set()
    for run in runs:
        for node in graph.blocks[run.block].nodes[run.start : run.stop]:
            homes = (graph.home(run.block, operand.tensor)[:2] for operand in node.inputs)
            found.update(home for home in homes if graph.blocks[home[0]].tensors[home[1]].role == "input")
    return frozenset(found)


def longest(runs: Iterable[Run]) -> int:
    """The place of the longest run."""
    return max(enumerate(runs), key=lambda found: found[1].times)[0]


def script(graph: Graph, stage: Sequence[Events], long: bool, pipelined: bool) -> Script:
    """Play a stage through by names. In a pipeline, what others begin is there from the start (it was received), and
    what nobody ends leaves after the forward pass (it is sent); gradients the other way round."""
    writer = _Writer(graph, stage, long)
    found = writer.play({}, {})
    if not pipelined or not (writer.missing or writer.alive or writer.twice):
        return found
    come, go = writer.missing, {**writer.alive, **writer.twice}
    return _Writer(graph, stage, long).play(come, go)


class _Writer:
    """Plays events and writes down what begins and ends."""

    def __init__(self, graph: Graph, stage: Sequence[Events], long: bool) -> None:
        self.graph, self.stage = graph, stage
        self.long = longest(events.run for events in stage) if long else -1
        self.alive: dict[Storage, Size] = {}
        self.missing: dict[Storage, Size] = {}  # ended, but never begun here
        self.twice: dict[Storage, Size] = {}  # begun while alive
        self.changes: list[int] = []
        self.stretches: list[Stretch] = []
        self.first = list(accumulate((len(e.forward) + len(e.backward) for e in stage), initial=0))
        if long:
            run = stage[self.long].run
            self.middle, self.left_out = run.first + HALF, run.times - PLAYED

    def play(self, come: dict[Storage, Size], go: dict[Storage, Size]) -> Script:
        self._come(come, gradients=False)
        forward = self._pass(range(len(self.stage)), 1)
        for name in go:
            if name[3] != "gradient" and name in self.alive:
                self._end(name, 0)
        between, self.changes = tuple(self.changes), []
        self._come(come, gradients=True)
        backward = self._pass(reversed(range(len(self.stage))), -1)
        return Script(forward, between, backward, self.long)

    def _come(self, come: dict[Storage, Size], gradients: bool) -> None:
        for name, size in come.items():
            if (name[3] == "gradient") == gradients:
                self._begin(name, size)

    def _pass(self, order: Iterable[int], way: int) -> Pass:
        marks: list[int] = []
        self.stretches = []
        for at in order:
            run = self.stage[at].run
            repetitions: Sequence[int] = range(run.first, run.first + run.times)
            if at == self.long:
                repetitions = [*repetitions[:HALF], *repetitions[-HALF:]]
            for place, repetition in enumerate(repetitions[::way]):
                if at == self.long and place >= HALF - 1:
                    marks.append(len(self.changes))
                self._body(at, repetition, way)
        found, self.changes = tuple(self.changes), []
        return Pass(found, (marks[0], marks[1], marks[2]) if marks else (0, 0, 0), tuple(self.stretches))

    def _body(self, at: int, repetition: int, way: int) -> None:
        events = self.stage[at]
        own, size = (events.forward, 0) if way > 0 else (events.backward, len(events.forward))
        begun = Stretch(at, len(self.changes), len(self.changes), opens=True)
        for number, event in enumerate(own, self.first[at] + size):
            if event.begins:
                before = len(self.changes)
                self._begin(self._named(events.run.block, repetition, event.name), number)
                if event.makes and len(self.changes) > before:
                    self.stretches.append(begun._replace(stop=before))
                    begun = Stretch(at, before + 1, before + 1, opens=False, made=number)
            elif happens(self.graph, events.run.block, repetition, event.when):
                self._end(self._named(events.run.block, repetition, event.name), number)
        self.stretches.append(begun._replace(stop=len(self.changes)))

    def _begin(self, name: Storage, size: Size) -> None:
        if name in self.alive:
            self.twice[name] = size
            return
        self.alive[name] = size
        self.changes.append(size + 1)

    def _end(self, name: Storage, size: Size) -> None:
        if name in self.alive:
            self.changes.append(-self.alive.pop(name) - 1)
        else:
            self.missing[name] = size

    def _named(self, at: int, repetition: int, name: str) -> Storage:
        """Repetitions after the middle of the long run follow at once on those before it."""
        found = storage(self.graph, at, repetition, name)
        if self.long < 0 or found[0] != self.stage[self.long].run.block or found[2] < self.middle:
            return found
        block, number, repetition, what = found
        return block, number, max(self.middle - 1, repetition - self.left_out), what
