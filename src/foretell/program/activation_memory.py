"""What one micro-batch holds on a stage: between its passes, at most in each, and which storages that is.

An allocation trace says what comes and goes. Here it gets sizes (numbers, or arrays for several numbers of samples at
once) and is added up. Weights that are gathered for a layer and gradients that a backward pass makes come on top,
interval by interval.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import add
from typing import Any, NamedTuple, TypeAlias, cast

from foretell.caches import emptied_when_full, forgettable
from foretell.model.graph import Graph
from foretell.model.layers import EqualLayers
from foretell.program.action import Action, Allocate, Compute, Free
from foretell.program.allocation_trace import (
    PLAYED,
    AllocationTrace,
    Interval,
    MemoryEvent,
    PassTrace,
    RunEvents,
    Size,
    Storage,
    allocation_trace,
)
from foretell.program.body import NewGradient
from foretell.program.stage_weights import UnitBytes
from foretell.units import Quantity, at_least, somewhere


class StagePeaks(NamedTuple):
    """Bytes of one micro-batch on one stage: between its passes, and at most in each."""

    kept: Quantity
    forward_peak: Quantity
    backward_peak: Quantity
    making_peak: Quantity  # in the backward pass, with the gradients of weights that it has made so far


class WeightBuffers(NamedTuple):
    """What weights add to the memory of passes: copies that are gathered for use, and gradients as they are made."""

    gathered: tuple[UnitBytes, ...] = ()  # for one layer of each run; empty: none are gathered
    reshards: bool = True  # gathered ones are let go between the passes
    gradient: float = 0.0  # bytes for each element of a gradient that a backward pass makes


class LayerMemory(NamedTuple):
    """The allocations and frees of one kind of layer, with their sizes."""

    forward: tuple[MemoryEvent, ...]
    backward: tuple[MemoryEvent, ...]
    number: int  # the same for layers with these events, whatever their sizes
    sizes: SizeTable
    elements: tuple[float, ...]  # of new gradients of weights, at the places of their sizes, which are 0 there
    runs_back: bool

    @classmethod
    def of(
        cls, forward: Iterable[Action], backward: Sequence[Action | NewGradient], samples: Quantity = 1
    ) -> LayerMemory:
        """Of the actions of its passes, whose sizes are numbers, or arrays for each of several numbers of samples."""
        passes = tuple(
            [action for action in actions if isinstance(action, Allocate | Free | NewGradient)]
            for actions in (forward, backward)
        )
        events = _events(passes[0]), _events(passes[1])
        both = [*passes[0], *passes[1]]
        return cls(
            *events,
            number=_NUMBERS.setdefault(events, len(_NUMBERS)),
            sizes=_size_table([0.0 if isinstance(one, NewGradient) else one.bytes for one in both], samples),
            elements=tuple(one.elements if isinstance(one, NewGradient) else 0.0 for one in both),
            runs_back=any(isinstance(action, Compute) for action in backward),
        )


_NUMBERS: dict[Hashable, int] = {}


def _events(actions: Iterable[Allocate | Free | NewGradient]) -> tuple[MemoryEvent, ...]:
    return tuple(
        MemoryEvent(False, action.name, action.when)
        if isinstance(action, Free)
        else MemoryEvent(True, action.name, "every", isinstance(action, NewGradient))
        for action in actions
    )


MOST_TRACES = 4096
_TRACES: dict[Hashable, AllocationTrace] = {}
emptied_when_full(_TRACES.clear)


def stage_trace(
    graph: Graph, layers: Sequence[tuple[EqualLayers, LayerMemory]], *, pipelined: bool, long: bool = False
) -> StageTrace:
    """The trace of a stage of these layers with their sizes; `long`: only the ends of its longest run are played."""
    key = (graph, tuple((run, layer.number) for run, layer in layers), long, pipelined)
    if key not in _TRACES:
        if len(_TRACES) >= MOST_TRACES:
            _TRACES.clear()
        events = [RunEvents(run, layer.forward, layer.backward) for run, layer in layers]
        _TRACES[key] = allocation_trace(graph, events, long, pipelined)
    return StageTrace(
        _TRACES[key],
        _joined([layer.sizes for _, layer in layers]),
        tuple(elements for _, layer in layers for elements in layer.elements),
        tuple(layer.runs_back for _, layer in layers),
    )


class AtPeak(NamedTuple):
    """What is alive at the fullest change of a pass."""

    storages: dict[Storage, float]
    gathered_layers: tuple[int, ...]  # of each run, how many have their weights gathered
    run: int  # that is at work
    messages: float  # bytes of messages of weights and gradients beside it


class StageTrace(NamedTuple):
    """One micro-batch on one stage: what is allocated and freed, and how large it is."""

    trace: AllocationTrace
    sizes: SizeTable
    elements: tuple[float, ...]
    runs_back: tuple[bool, ...]  # which runs have a backward pass

    def bytes(self, storages: Mapping[Storage, Size]) -> dict[Storage, float]:
        """Bytes of storages, new gradients apart."""
        return {storage: self.sizes[size] for storage, size in storages.items()}

    def profile(self) -> MemoryProfile | None:
        """What is held when; None where the layers of the long run do not all add the same."""
        trace, sizes, elements = self.trace, self.sizes, self.elements
        up = _heights(trace.forward.changes.sizes, sizes, 0.0)
        kept = _heights(trace.sent.sizes, sizes, up[-1])[-1]
        down = _heights(trace.backward.changes.sizes, sizes, kept)
        long = trace.long >= 0
        forward = _interval_peaks(trace.forward, up, elements, long)
        backward = _interval_peaks(trace.backward, down, elements, long)
        added, made = 0.0, 0.0
        if long:
            (a, b, c), (d, e, f) = trace.forward.marks, trace.backward.marks
            added, made = up[b] - up[a], self._made(d, e)
            same = (up[c] - up[b], down[d] - down[e], down[e] - down[f])
            if made != self._made(e, f) or any(somewhere(other - added) for other in same):
                return None
        return MemoryProfile(kept, added, made, forward, backward, trace.long, self.runs_back)

    def _made(self, start: int, stop: int) -> float:
        """Elements of the gradients that changes of the backward pass make."""
        return sum(self.elements[size - 1] for size in self.trace.backward.changes.sizes[start:stop] if size > 0)

    def kept(self) -> dict[Storage, float]:
        """What waits for the backward pass, of sizes that are numbers."""
        return self.bytes(self.trace.kept)

    def at_peak(self, forward: bool, weights: WeightBuffers) -> AtPeak:
        """What is alive when a pass is fullest, of sizes that are numbers, and with every run played whole."""
        profile = self.profile()
        assert profile is not None and self.trace.long < 0
        raised = profile.raised(weights)
        if forward:
            own, fullest = self.trace.forward, profile.forward.fullest(raised.forward)
            heights = _heights(own.changes.sizes, self.sizes, 0.0)
        else:
            own, fullest = self.trace.backward, profile.backward.fullest(raised.making)
            heights = _heights(own.changes.sizes, self.sizes, profile.kept)
        interval = own.intervals[fullest]
        played = max(range(interval.start, interval.stop + 1), key=lambda at: heights[at])
        alive = own.changes.play({} if forward else self.trace.kept, played)
        made = {one: self.elements[size] * weights.gradient for one, size in alive.items() if one[3] == "made"}
        layers = profile.gathered_layers(forward, fullest, weights.reshards)
        messages = profile.messages(weights, interval.run, forward) if weights.gathered else 0.0
        return AtPeak(self.bytes(alive) | made, layers, interval.run, messages)


class IntervalPeaks(NamedTuple):
    """What is held at most in each interval of a pass."""

    intervals: tuple[Interval, ...]
    most: SizeTable
    made: tuple[float, ...]  # elements of the gradients that were made until then
    middle: int  # the first interval behind the middle of the long run

    def halves(self, raised: Sequence[float] = ()) -> Halves:
        """The most before the middle of the long run and after it, with so much more in each interval."""
        if not raised:
            whole: Any = self.most
        elif hasattr(self.most, "shape"):
            import numpy

            whole = self.most + numpy.array(raised)[:, None]
        else:
            whole = [size + more for size, more in zip(self.most, raised, strict=True)]
        after = whole[self.middle :]
        return _most(whole[: self.middle]), _most(after) if len(after) else 0.0

    def fullest(self, raised: Sequence[float]) -> int:
        """The interval that holds most with so much more in each, of sizes that are numbers."""
        return max(range(len(self.intervals)), key=lambda at: self.most[at] + raised[at])


Halves: TypeAlias = tuple[Quantity, Quantity]
"""The most that is held before the middle of the long run, and after it."""


def _interval_peaks(own: PassTrace, heights: Heights, elements: Sequence[float], long: bool) -> IntervalPeaks:
    intervals = own.intervals
    middle = sum(one.stop <= own.marks[1] for one in intervals) if long else len(intervals)
    made = accumulate(elements[one.new_gradient] if one.new_gradient >= 0 else 0.0 for one in intervals)
    return IntervalPeaks(intervals, _most_of(intervals, heights), tuple(made), middle)


class Raised(NamedTuple):
    """Bytes that weights add in each interval of the passes, between the passes, and for each repetition more."""

    forward: list[float]
    backward: list[float]
    making: list[float]  # in the backward pass, with the gradients that were made until then
    kept: float
    each: float


@dataclass(frozen=True)
class MemoryProfile:
    """The passes of a stage whose longest run has `PLAYED` repetitions, and what each one more adds."""

    kept: Quantity
    each: Quantity
    made: float  # elements of gradients that each one more makes
    forward: IntervalPeaks
    backward: IntervalPeaks
    long: int  # the run that may be longer; -1: none
    runs_back: tuple[bool, ...]

    def peaks(self, times: Quantity, weights: WeightBuffers) -> StagePeaks:
        """What is held with so many repetitions of the long run."""
        if not weights.gathered and not weights.gradient:
            if self.long < 0:
                return self._short
            raised = _NOT_RAISED
        else:
            raised = self.raised(weights)
        ahead, back = self._alone
        if weights.gathered:
            ahead, back = self.forward.halves(raised.forward), self.backward.halves(raised.backward)
        making = self.backward.halves(raised.making) if weights.gradient else back
        left_out = at_least(times - PLAYED, 0)
        more = (self.each + raised.each) * left_out
        return StagePeaks(
            self.kept + raised.kept + more,
            at_least(ahead[0], ahead[1] + more),
            at_least(back[0] + more, back[1]),
            at_least(making[0] + more, making[1] + self.made * weights.gradient * left_out),
        )

    @functools.cached_property
    def _alone(self) -> tuple[Halves, Halves]:
        """Both passes without what weights add."""
        return self.forward.halves(), self.backward.halves()

    @functools.cached_property
    def _short(self) -> StagePeaks:
        """What is held where no run may be longer and weights add nothing."""
        ahead, back = (at_least(*halves) for halves in self._alone)
        return StagePeaks(self.kept, ahead, back, back)

    def raised(self, weights: WeightBuffers) -> Raised:
        """What weights add to the passes."""
        forward, backward, kept, each = self._gathered([one.own for one in weights.gathered], weights.reshards)
        if weights.gathered:
            ahead = (self.messages(weights, one.run, True) for one in self.forward.intervals)
            back = (self.messages(weights, one.run, False) for one in self.backward.intervals)
            forward, backward = [*map(add, forward, ahead)], [*map(add, backward, back)]
        grown = (elements * weights.gradient for elements in self.backward.made)
        return Raised(forward, backward, [*map(add, backward, grown)], kept, each)

    def messages(self, weights: WeightBuffers, run: int, forward: bool) -> float:
        """Bytes of messages of weights and gradients that are there in a pass of a layer."""
        own = weights.gathered[run]
        if forward:
            return own.ahead
        return own.next + own.sums if self.runs_back[run] else 0.0

    def gathered_layers(self, forward: bool, interval: int, reshards: bool) -> tuple[int, ...]:
        """How many layers of each run have their weights gathered in an interval of a pass."""
        runs = range(len(self.runs_back))
        each = (self._gathered([float(run == own) for own in runs], reshards) for run in runs)
        return tuple(int((ahead if forward else back)[interval]) for ahead, back, *_ in each)

    def _gathered(self, sizes: Sequence[float], reshards: bool) -> tuple[list[float], list[float], float, float]:
        """Bytes of gathered weights in each interval of both passes, between these, and of each repetition more."""
        ahead, back = self.forward.intervals, self.backward.intervals
        if not sizes:
            return [0.0] * len(ahead), [0.0] * len(back), 0.0, 0.0
        if reshards:  # frozen layers with nothing trained before them gather nothing on the way back
            again = [size if runs else 0.0 for size, runs in zip(sizes, self.runs_back, strict=True)]
            return [sizes[one.run] for one in ahead], [again[one.run] for one in back], 0.0, 0.0
        begun = [*accumulate(sizes[one.run] * one.opens for one in ahead)]
        over = accumulate(sizes[one.run] * one.opens for one in back)  # this one included, which is still at work
        left = [begun[-1] - gone + sizes[one.run] for gone, one in zip(over, back, strict=True)]
        return begun, left, begun[-1], sizes[self.long] if self.long >= 0 else 0.0


_NOT_RAISED = Raised([], [], [], 0.0, 0.0)


# sizes as numbers, or as arrays

Heights: TypeAlias = Any
"""What is held before and after each change: a list, or an array with a row for each."""

SizeTable: TypeAlias = Any
"""Sizes: a list, or an array with a row for each where they are for several numbers of samples."""


def _size_table(sizes: Sequence[Quantity], samples: Quantity) -> SizeTable:
    """Sizes for a number of samples, or for each of several."""
    if isinstance(samples, int):
        return list(sizes)
    import numpy

    table = numpy.empty((len(sizes), len(samples)))
    for at, size in enumerate(sizes):
        table[at] = size
    return table


def _joined(tables: Sequence[SizeTable]) -> SizeTable:
    """The sizes of several tables in one."""
    if not tables or isinstance(tables[0], list):
        return [size for table in tables for size in table]
    import numpy

    return numpy.concatenate(tables)


def _heights(changes: tuple[int, ...], sizes: SizeTable, start: Quantity) -> Heights:
    """What is held before and after each change."""
    if isinstance(sizes, list):
        numbers = cast("list[float]", sizes)
        return list(accumulate((numbers[c - 1] if c > 0 else -numbers[-c - 1] for c in changes), initial=start))
    import numpy

    places, signs = _signed(changes)
    heights = numpy.empty((len(changes) + 1, sizes.shape[1]))
    heights[0] = start
    numpy.multiply(sizes[places], signs, out=heights[1:])
    return numpy.cumsum(heights, axis=0)


@forgettable
@functools.lru_cache(maxsize=4096)
def _signed(changes: tuple[int, ...]) -> tuple[Any, Any]:
    """The numbers of sizes that change, and whether each is added or taken away."""
    import numpy

    signed = numpy.array(changes, dtype=numpy.int64)
    return numpy.abs(signed) - 1, numpy.sign(signed)[:, None].astype(float)


def _most(heights: Heights) -> Quantity:
    return heights.max(axis=0) if hasattr(heights, "max") else max(heights)


def _most_of(intervals: Sequence[Interval], heights: Heights) -> SizeTable:
    """The largest of the heights of each interval, its ends included."""
    if not hasattr(heights, "shape"):
        return [max(heights[one.start : one.stop + 1]) for one in intervals]
    import numpy

    ends = [end for one in intervals for end in (one.start, one.stop + 1)]
    padded = numpy.concatenate([heights, heights[-1:]])  # an end may be one after the last
    return numpy.maximum.reduceat(padded, ends)[::2]
