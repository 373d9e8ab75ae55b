"""Orders of slots as numbers: who does what, which slot waits for which, and what is in flight when.

An order depends on the schedule, the ranks, the micro-batches and the stages of a rank, on nothing else. Once a
pipeline is full, each round of as many micro-batches as ranks adds the same, or nearly so where a host gets ahead
of its device very slowly (docs/timeline.md): long steps are unrolled up to there.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from foretell.caches import forgettable, make_room
from foretell.compiling import available, compiled, whole_row
from foretell.errors import BadInput
from foretell.plan.schedule import SLOT_KINDS, Schedule, Slot
from foretell.plan.unroll import Row, is_compiled, unroll
from foretell.plan.unroll import kernels as unroll_kernels
from foretell.timeline import slot_order
from foretell.units import whole_numbers

FULL = 4
"""Rounds of micro-batches, as many as ranks each, after which a pipeline is taken to be full."""

SETTLED = 24
"""And micro-batches at least: a host that gets ahead of its device little by little takes some until it is."""


SLOT_BYTES = 200
"""Of a slot of an order that is kept: a number in each of its rows."""


class RankSlot(NamedTuple):
    """A slot of a rank: micro-batches in flight before it, by the rank's stages."""

    flying: tuple[float, ...]
    slot: Slot

    @property
    def forward(self) -> bool:
        return self.slot.kind == "F"


class Moments(NamedTuple):
    """Slots of all ranks, one rank's after the other's: all, or those in which a rank may hold most."""

    begin: Row  # of each rank's, and where the last ones end
    stage: Row
    kind: Row
    microbatch: Row
    flying: Row  # of each moment a number for each of the rank's stages
    width: int  # how many these are

    def one(self, at: int) -> RankSlot:
        own = self.flying[at * self.width : (at + 1) * self.width]
        slot = Slot(SLOT_KINDS[self.kind[at]], int(self.stage[at]), int(self.microbatch[at]))
        return RankSlot(tuple(map(float, own)), slot)

    def at(self, places: Row, begin: Row) -> Moments:
        """Some of them, of each rank from `begin` on."""
        stage, kind, microbatch = (_picked(values, places) for values in (self.stage, self.kind, self.microbatch))
        if is_array(self.flying):
            flying = self.flying.reshape(-1, self.width)[places].ravel()
        else:
            flying = [self.flying[at * self.width + chunk] for at in places for chunk in range(self.width)]
        return Moments(begin, stage, kind, microbatch, flying, self.width)

    def later(self, shorter: Moments, rounds: int) -> Moments | None:
        """Those of a step that is so many rounds longer, from one a round shorter; None: they cannot be told."""
        if not (_equal(self.begin, shorter.begin) and _equal(self.stage, shorter.stage)):
            return None
        if not _equal(forward(self.kind), forward(shorter.kind)):
            return None
        microbatch = _longer(shorter.microbatch, self.microbatch, rounds)
        return self._replace(microbatch=microbatch, flying=_longer(shorter.flying, self.flying, rounds))


@dataclass(frozen=True)
class SlotOrder:
    """All slots of all ranks, each after those it waits for."""

    ranks: int
    rank: Row
    kind: Row
    stage: Row
    takes: Row  # the place where what it receives lies; 0: nothing was sent to it
    puts: Row  # the place where what it sends will lie; 0: nobody takes it
    places: int  # how many there are
    last: Row  # the step's last of its stage: the gradients of its weights are there then
    tail: Row  # its rank's first last slot, and all after it
    tails: Row  # the places of these
    pair: Row  # the first or the second of a forward and a backward that run together
    held: tuple[tuple[int, ...], ...]  # the stages of each rank
    moments: Moments
    counts: dict[int, Counter[tuple[int, int]]] = field(
        init=False, repr=False, compare=False, default_factory=dict[int, Counter[tuple[int, int]]]
    )

    def shared(self, other: SlotOrder) -> int:
        """How many slots two orders begin with in common."""
        rows = ("rank", "kind", "stage", "takes", "puts", "last", "pair")
        alike = min(_in_common(getattr(self, row), getattr(other, row)) for row in rows)
        return (
            alike - 1 if alike < len(self.pair) and self.pair[alike] == slot_order.SECOND else alike
        )  # no pair is cut

    def counted(self, rank: int) -> Counter[tuple[int, int]]:
        """How often a rank has each kind of slot of each of its stages: (stage, kind)."""
        if not self.counts:
            self.counts.update({each: Counter() for each in range(self.ranks)})
            slots = zip(*(_listed(row) for row in (self.rank, self.stage, self.kind)), strict=True)
            for (own, stage, kind), times in Counter(slots).items():
                self.counts[own][stage, kind] = times
        return self.counts[rank]

    def paired(self, rank: int) -> Counter[tuple[Slot, Slot]]:
        """How often a forward and a backward of a rank run together, as slots without their micro-batches."""
        rows = zip(*(_listed(row) for row in (self.rank, self.kind, self.stage, self.pair)), strict=True)
        own = [Slot(SLOT_KINDS[kind], stage, 0) for at, kind, stage, pair in rows if at == rank and pair]
        return Counter(zip(own[::2], own[1::2], strict=True))


class UnrolledSchedule(NamedTuple):
    """The order of a step that is unrolled, the one a round shorter, and rounds that are still to come."""

    order: SlotOrder
    before: SlotOrder | None
    rounds: int
    moments: Moments  # of the whole step
    key: Hashable  # the same for steps of which the same is unrolled
    flying: Hashable  # and the same for those of them with as much in flight


@forgettable
@functools.lru_cache(maxsize=1024)
def unrolled_schedule(
    schedule: Schedule, ranks: int, microbatches: int, chunks: int, whole: bool = False
) -> UnrolledSchedule:
    """The order of a step, cut short where the pipeline is full, unless the `whole` step is asked for."""
    full = max(FULL, -(-SETTLED // ranks))
    rounds = 0 if whole else max(0, microbatches // ranks - full - 1)
    count = microbatches - rounds * ranks
    found = order(schedule, ranks, count, chunks)
    key = (schedule, ranks, count, chunks)
    if not rounds:
        return UnrolledSchedule(found, None, 0, found.moments, key, key)
    before = order(schedule, ranks, count - ranks, chunks)
    moments = found.moments.later(before.moments, rounds)
    if moments is None:
        moments = order(schedule, ranks, microbatches, chunks).moments
    as_full = _equal(found.moments.flying, moments.flying)
    return UnrolledSchedule(found, before, rounds, moments, key, key if as_full else (*key, rounds))


def every_slot(schedule: Schedule, ranks: int, microbatches: int, chunks: int) -> UnrolledSchedule:
    """A step whose moments are all its slots, not those alone in which a rank may hold most."""
    found = order(schedule, ranks, microbatches, chunks)
    moments = _Ordered(schedule, ranks, microbatches, chunks, is_compiled()).every_moment()
    key = (schedule, ranks, microbatches, chunks)
    return UnrolledSchedule(found, None, 0, moments, key, (*key, "every slot"))


def in_flight(slots: Sequence[Slot], stages: Sequence[int]) -> list[tuple[int, ...]]:
    """Of each slot of a rank, the micro-batches in flight before it, by the stages that the rank holds."""
    each, rows = len(stages), ([SLOT_KINDS.index(slot.kind) for slot in slots], [slot.stage for slot in slots])
    flying = [0] * (len(slots) * each)
    kernels: Any = slot_order
    kernels.in_flight([0, len(slots)], *rows, list(stages), each, flying)
    return [tuple(flying[at : at + each]) for at in range(0, len(flying), each)]


LONG = 20_000
"""Passes of a step for which loading compiled code pays."""


@forgettable
@functools.lru_cache(maxsize=1024)
def order(schedule: Schedule, ranks: int, microbatches: int, chunks: int) -> SlotOrder:
    """The slots of a step in an order in which they can be played."""
    for refusal in schedule.refusals(ranks, microbatches, chunks):
        raise BadInput(refusal.why, where=f"pp{ranks}:{schedule.name}", fix=refusal.way_out)
    if ranks * microbatches * chunks > LONG:
        load()
    found = ordered(schedule, ranks, microbatches, chunks, is_compiled())
    make_room(SLOT_BYTES * len(found.rank))
    return found


def load() -> None:
    """Have orders found by compiled functions from now on, where there is a compiler."""
    if available():
        unroll_kernels(fast=True)


def ordered(schedule: Schedule, ranks: int, microbatches: int, chunks: int, fast: bool) -> SlotOrder:
    """The same by compiled functions, or not."""
    return _Ordered(schedule, ranks, microbatches, chunks, fast).order()


class _Ordered:
    """The slots of one step, as rows of numbers."""

    def __init__(self, schedule: Schedule, ranks: int, microbatches: int, chunks: int, fast: bool) -> None:
        self.schedule, self.ranks, self.stages = schedule, ranks, ranks * chunks
        self.kernels: Any = compiled(slot_order.__name__) if fast else slot_order
        self.row: Callable[[Sequence[int]], Row] = whole_numbers if fast else list[int]
        self.held = _held(schedule, ranks, chunks)
        self.each = len(self.held[0])  # stages of a rank
        self.own = self.row([stage for held in self.held for stage in held])
        self.paths = [schedule.path(at, ranks, microbatches, chunks) for at in range(microbatches)]
        self.slots = unroll(schedule, ranks, microbatches, chunks, fast)

    def _zeros(self, count: int) -> Row:
        return whole_row(count, is_array(self.own))

    def order(self) -> SlotOrder:
        firsts, lasts = (self.row([path[at] for path in self.paths]) for at in (0, -1))
        slots, place = self.slots, self.row([-1] * (2 * self.stages * len(self.paths)))
        written = (slots.row_at, slots.kind, slots.stage)
        slot, rank, source, done = self.kernels.flattened(slots, firsts, lasts, self.stages, place)
        if done < len(slot):
            raise ValueError(f"{self.schedule.name} waits for itself at pp{self.ranks} m{len(self.paths)}")
        is_last, paired = (self._zeros(len(slots.kind)) for _ in range(2))
        self.kernels.ends(*written, self.stages, is_last)
        self.kernels.pairs(slots.row_at, slots.kind, slots.block, paired)
        kind, stage, last, pair = (_picked(values, slot) for values in (slots.kind, slots.stage, is_last, paired))
        takes, puts, tail, tails = (self._zeros(len(slot)) for _ in range(4))
        places = int(self.kernels.posted(kind, source, puts, takes))
        late = self.kernels.tails(rank, last, self.ranks, tail, tails)
        unrolled_schedule = (rank, kind, stage, takes, puts, places, last, tail, tails[:late], pair)
        return SlotOrder(self.ranks, *unrolled_schedule, self.held, self._moments())

    def every_moment(self) -> Moments:
        """Every slot of every rank."""
        slots, each, count = self.slots, self.each, int(self.slots.row_at[self.ranks])
        flying = self._zeros(count * each)
        self.kernels.in_flight(slots.row_at, slots.kind, slots.stage, self.own, each, flying)
        stage, kind, microbatch = (values[:count] for values in (slots.stage, slots.kind, slots.microbatch))
        return Moments(slots.row_at, stage, kind, microbatch, flying, each)

    def _moments(self) -> Moments:
        """The slots of all ranks in which they may hold most."""
        every = self.every_moment()
        kept, begin = self._zeros(len(every.kind)), self._zeros(self.ranks + 1)
        self.kernels.fullest(every.begin, every.kind, every.stage, self.own, self.each, every.flying, kept, begin)
        return every.at(kept[: int(begin[self.ranks])], begin)


@forgettable
@functools.lru_cache(maxsize=1024)
def _held(schedule: Schedule, ranks: int, chunks: int) -> tuple[tuple[int, ...], ...]:
    """The stages of each rank."""
    return tuple(schedule.stages_of(place, ranks, chunks) for place in range(ranks))


def forward(kinds: Row) -> Row:
    """Of each kind of slot whether it is a forward pass."""
    return kinds == 0 if is_array(kinds) else [kind == 0 for kind in kinds]


def is_array(values: Row) -> bool:
    """Whether a row is what compiled functions made."""
    return hasattr(values, "dtype")


def _listed(values: Row) -> list[int]:
    return values.tolist() if is_array(values) else values


def _picked(values: Row, at: Row) -> Row:
    """Values at some places."""
    return values[at] if is_array(values) else [values[n] for n in at]


def _equal(some: Row, others: Row) -> bool:
    if is_array(some) and len(some) == len(others):
        return bool((some == others).all())
    return _listed(some) == _listed(others)


def _in_common(some: Row, others: Row) -> int:
    """How many values two rows begin with in common."""
    least = min(len(some), len(others))
    if is_array(some) and is_array(others):
        differ = (some[:least] != others[:least]).nonzero()[0]
        return int(differ[0]) if len(differ) else least
    pairs = enumerate(zip(_listed(some), _listed(others), strict=False))
    return next((at for at, (one, other) in pairs if one != other), least)


def _longer(before: Row, after: Row, rounds: int) -> Row:
    if is_array(after):
        return after + (after - before) * rounds
    return [b + (b - a) * rounds for a, b in zip(before, after, strict=True)]
