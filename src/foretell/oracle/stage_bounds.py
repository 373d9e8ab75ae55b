"""What a pipeline takes at least with some number of layers on each stage, and the splits in the order of these bounds.

No rank is faster than its own work, the way of the first micro-batch to it and the way of the last one back.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from foretell.caches import forgettable
from foretell.oracle.stage_figures import Range, Split, StageFigures, StagesByLayers, ranges
from foretell.plan.schedule import Slot, find

FEW = 256
"""Ways to cut that are so few that all of them may be predicted."""

LOOKED = 2_000
"""Beginnings of ways to cut that are looked at, at most."""

GLANCED = 200
"""The same where ranks have several stages: bounds are too far apart then to prove much."""


def ways(stages: StagesByLayers) -> int:
    """How many splits there are."""
    return math.comb(stages.layers - 1, stages.parts - 1)


class SplitBounds(Protocol):
    """What splits of a plan take at least."""

    def in_order(self) -> Iterator[tuple[float, Split | None]]:
        """Splits below the limit, the least bound first; None: too many begin so, and none has a lesser bound."""
        ...

    def least(self) -> float:
        """A bound of all splits; infinite where none can be below the limit."""
        ...

    def of(self, split: Split) -> float:
        """Seconds of a split that its prediction is never below; infinite where it is not below the limit."""
        ...


def bounds(stages: StagesByLayers, capacity: float, limit: float) -> SplitBounds:
    """The bounds of splits that fit, as far as that is known of one stage alone, and take less than a limit."""
    kind = _OneStage if stages.partition.chunks == 1 else _SeveralStages
    return kind(stages, capacity, limit)


class _StageSeconds(NamedTuple):
    """Seconds of a stage: of the longest chain through its rank's slots, and of the way through it for those behind."""

    own: float
    through: float
    launched: float  # of its host


class Chain(NamedTuple):
    """Slots of a rank that cannot begin before one another, and how often the way is through all stages behind it."""

    slots: Counter[str]  # by kind
    turns: int


@forgettable
@functools.lru_cache(maxsize=256)
def chains(schedule: str, ranks: int, microbatches: int) -> tuple[tuple[Chain, ...], ...]:
    """Chains through the slots of each rank, where each has one stage.

    A rank that sends a micro-batch on may do others until it comes back; so a chain either goes through these, or with
    the micro-batch through all stages behind. There is one without a turn, one that turns with the first and the last
    micro-batch, and one that turns whenever it can.
    """
    rows = find(schedule).order(ranks, microbatches, 1)
    turning = ((), (0, microbatches - 1), range(microbatches))
    return tuple(tuple(_chain(row, set(at)) for at in turning) for row in rows)


def _chain(row: Sequence[Slot], turning: set[int]) -> Chain:
    back = {slot.microbatch: at for at, slot in enumerate(row) if slot.kind in ("B", "I")}
    found, turns, at = Counter[str](), 0, 0
    while at < len(row):
        slot = row[at]
        found[slot.kind] += 1
        if slot.kind == "F" and slot.microbatch in turning:
            turns += 1
            at = back[slot.microbatch]
        else:
            at += 1
    return Chain(found, turns)


class _Figures:
    """What a plan's schedule makes of the figures of its stages."""

    def __init__(self, stages: StagesByLayers, capacity: float, limit: float) -> None:
        self.stages, self.capacity, self.limit = stages, capacity, limit
        self.parts, self.layers, partition = stages.parts, stages.layers, stages.partition
        self.ranks, schedule, count = partition.ranks, partition.schedule, stages.setting.plan.microbatches
        self.alone = partition.chunks == 1
        self.chains = chains(schedule.name, self.ranks, count) if self.alone else ()
        self.times = [
            len(schedule.microbatches_of(at, self.ranks, count, partition.chunks)) for at in range(self.parts)
        ]
        # A rank's first slot is the first micro-batch's forward at its first stage, and that has come through all
        # stages before. Its last is a backward at the same stage, which has to go back through all of them, unless
        # gradients of weights come last. Where the model lies on the pipeline twice, ranks begin at either end.
        self.enters = schedule.copies == 1
        self.returns = self.enters and not schedule.splits_backward and stages.trained_through
        self.turns = self.alone and stages.trained_through
        self.mean = sum(self.times) / self.parts * stages.at_least(Range(0, self.layers)) / self.parts
        self._behind: dict[tuple[int, int], float] = {}
        self._choices: dict[tuple[int, int], list[tuple[int, _StageSeconds]]] = {}
        self._works: dict[tuple[int, Range], _StageSeconds] = {}

    def work(self, part: int, own: Range) -> _StageSeconds:
        """The seconds of a stage with these layers."""
        if (part, own) not in self._works:
            self._works[part, own] = self._work(part, own)
        return self._works[part, own]

    def _work(self, part: int, own: Range) -> _StageSeconds:
        figures = self.stages.of(part, own)
        seconds = self._busy(part, figures)
        if self.turns:
            behind = self.behind(part + 1, own.stop)
            for slots, turns in self.chains[part]:
                chain = sum(count * figures.slots[kind] for kind, count in slots.items())
                seconds = max(seconds, chain + (turns * (figures.sent_forward + behind) if turns else 0.0))
        launched = self.times[part] * figures.launched
        return _StageSeconds(seconds + self._after(part, figures), self._through(part, figures), launched)

    def _busy(self, part: int, figures: StageFigures) -> float:
        return self.times[part] * (max(figures.busy, figures.launched) if self.alone else figures.busy)

    def _after(self, part: int, figures: StageFigures) -> float:
        """Seconds after a stage's last slot: the step ends at the first rank, where it goes back to that."""
        if part == 0 or not self.returns:
            return figures.finish
        return figures.sent_back if part < self.ranks else 0.0

    def _through(self, part: int, figures: StageFigures) -> float:
        if self.returns:  # the first stage ends the step
            return figures.through + (figures.finish if part == 0 else 0.0)
        return figures.forward + figures.sent_forward if self.enters else 0.0

    def behind(self, part: int, first: int) -> float:
        """The least seconds from when a micro-batch comes to a stage until it has been to the last one and back."""
        if part == self.parts:
            return 0.0 if first == self.layers else float("inf")
        key = (part, first)
        if key not in self._behind:
            found = (
                self.stages.of(part, Range(first, stop)).through + self.behind(part + 1, stop)
                for stop in self._stops(part, first)
            )
            self._behind[key] = min(found, default=float("inf"))
        return self._behind[key]

    def _stops(self, part: int, first: int) -> Iterator[int]:
        """Where the stage that begins with a layer may stop, so that it and those behind it are below the limit."""
        stages, times, left = self.stages, self.times[part], self.parts - part - 1
        at_least = stages.alone_at_least if self.alone else stages.at_least
        for stop in range(first + 1, self.layers - left + 1) if left else (self.layers,):
            own = Range(first, stop)
            if times * at_least(own) >= self.limit:  # longer ones are slower
                return
            if left and times * at_least(Range(stop, self.layers)) >= self.limit * left:
                continue
            figures = stages.of(part, own)
            if self._busy(part, figures) >= self.limit or (self.alone and figures.memory[part] > self.capacity):
                return
            yield stop

    def choices(self, part: int, first: int) -> list[tuple[int, _StageSeconds]]:
        """Where the stage that begins with a layer may stop, and its work."""
        if (part, first) not in self._choices:
            works = ((stop, self.work(part, Range(first, stop))) for stop in self._stops(part, first))
            self._choices[part, first] = [(stop, work) for stop, work in works if work.own < self.limit]
        return self._choices[part, first]


class _Begun(NamedTuple):
    """The first stages of a split. Of those with equal bounds long and even ones are looked at first."""

    bound: float
    left: int  # less the stages that there are
    uneven: float
    split: Split
    layers: int  # on these
    way: float
    reached: float


class _OneStage:
    """Ranks with one stage each: the least bound of all that begins in a certain way is known."""

    def __init__(self, stages: StagesByLayers, capacity: float, limit: float) -> None:
        self.figures = _Figures(stages, capacity, limit)
        self.parts, self.layers = stages.parts, stages.layers
        self._rest: dict[tuple[int, int], float] = {}

    def least(self) -> float:
        return self.rest(0, 0)

    def of(self, split: Split) -> float:
        reached = way = 0.0
        for part, own in enumerate(ranges(split)):
            work = self.figures.work(part, own)
            reached = max(reached, way + work.own)
            way += work.through
        return reached

    def rest(self, part: int, first: int) -> float:
        """The least bound of the stages from one on, counted from when the first micro-batch comes there."""
        if part == self.parts:
            return 0.0 if first == self.layers else float("inf")
        key = (part, first)
        if key not in self._rest:
            found = (
                max(work.own, work.through + self.rest(part + 1, stop))
                for stop, work in self.figures.choices(part, first)
            )
            self._rest[key] = min(found, default=float("inf"))
        return self._rest[key]

    def in_order(self) -> Iterator[tuple[float, Split | None]]:
        """Best first: the bound of a beginning is that of its best end, so nothing is looked at in vain."""
        start = _Begun(self.rest(0, 0), 0, 0.0, (), 0, 0.0, 0.0)
        waiting = [start]
        for _ in range(LOOKED):
            if not waiting:
                return
            one = heapq.heappop(waiting)
            part = len(one.split)
            if part == self.parts:
                yield one.bound, one.split
                continue
            for stop, work in self.figures.choices(part, one.layers):
                reached, way = max(one.reached, one.way + work.own), one.way + work.through
                bound = max(reached, way + self.rest(part + 1, stop))
                if bound < self.figures.limit:
                    uneven = one.uneven + (work.own - self.figures.mean) ** 2
                    split = (*one.split, stop - one.layers)
                    heapq.heappush(waiting, _Begun(bound, -part - 1, uneven, split, stop, way, reached))
        yield waiting[0][0] if waiting else float("inf"), None


Loads: TypeAlias = tuple[tuple[float, float], ...]
"""Seconds of the device and the host of each rank."""


class _SeveralStages:
    """Ranks with several stages each: the rest's work is divided among all of them at best."""

    def __init__(self, stages: StagesByLayers, capacity: float, limit: float) -> None:
        self.figures = _Figures(stages, capacity, limit)
        self.parts, self.layers = stages.parts, stages.layers
        partition = stages.partition
        self.ranks = partition.ranks
        self.nothing: Loads = ((0.0, 0.0),) * self.ranks
        self.holders = [
            {rank for rank, own in zip(partition.rank, partition.part, strict=True) if own == part}
            for part in range(self.parts)
        ]
        self.copies = partition.schedule.copies

    def least(self) -> float:
        return self._shared(self.nothing, 0.0, 0, 0)

    def of(self, split: Split) -> float:
        loads, way = self.nothing, 0.0
        for part, own in enumerate(ranges(split)):
            loads, way = self._loaded(loads, way, part, self.figures.work(part, own))
        return max(max(load) for load in loads)

    def _loaded(self, loads: Loads, way: float, part: int, work: _StageSeconds) -> tuple[Loads, float]:
        """What ranks have done with one part more. Every rank that has the part does its work."""
        added = list(loads)
        for rank in self.holders[part]:
            own, launched = loads[rank]
            added[rank] = own + work.own + (0.0 if own else way), launched + work.launched
        return tuple(added), way + work.through

    def in_order(self) -> Iterator[tuple[float, Split | None]]:
        start = _Begun(self.least(), 0, 0.0, (), 0, 0.0, 0.0)
        waiting = [(start, self.nothing)]
        for _ in range(LOOKED if ways(self.figures.stages) <= FEW else GLANCED):
            if not waiting:
                return
            one, loads = heapq.heappop(waiting)
            part = len(one.split)
            if part == self.parts:
                yield one.bound, one.split
                continue
            for stop, work in self.figures.choices(part, one.layers):
                added, way = self._loaded(loads, one.way, part, work)
                bound = max(self._shared(added, way, part, stop), *map(max, added))
                if bound < self.figures.limit:
                    uneven = one.uneven + (work.own - self.figures.mean) ** 2
                    split = (*one.split, stop - one.layers)
                    heapq.heappush(waiting, (_Begun(bound, -part - 1, uneven, split, stop, way, 0.0), added))
        yield waiting[0][0].bound if waiting else float("inf"), None

    def _shared(self, loads: Loads, way: float, part: int, stop: int) -> float:
        """What ranks take on average, with the rest of the layers and the way to those that have none yet."""
        rest = self.figures.times[0] * self.copies * self.figures.stages.at_least(Range(stop, self.layers))
        still = max(0, self.ranks - 1 - part)
        return (sum(own for own, _ in loads) + still * way + rest) / self.ranks
