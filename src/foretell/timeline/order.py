"""Orders of slots as numbers: who does what, which slot waits for which, and what is in flight when.

An order depends on the schedule, the ranks, the micro-batches and the stages of a rank, on nothing else. Once a
pipeline is full, each round of as many micro-batches as ranks adds the same, or nearly so where a host gets ahead
of its device very slowly (docs/timeline.md): long steps are played up to there.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple

from foretell.cost.layers import KINDS
from foretell.errors import BadInput
from foretell.plan.schedule import Schedule, find
from foretell.timeline import slots
from foretell.timeline.compiling import available, compiled, loaded
from foretell.units import whole_numbers

FULL = 4
"""Rounds of micro-batches, as many as ranks each, after which a pipeline is taken to be full."""

SETTLED = 24
"""And micro-batches at least: a host that gets ahead of its device little by little takes some until it is."""


class Moment(NamedTuple):
    """A slot in which a rank may hold most: micro-batches in flight before it, by the rank's stages."""

    flying: tuple[float, ...]
    stage: int
    forward: bool
    kind: str
    microbatch: int


@dataclass(frozen=True)
class Order:
    """All slots of all ranks, each after those it waits for."""

    ranks: int
    rank: list[int]
    kind: list[int]
    stage: list[int]
    source: list[int]  # the slot whose output it receives; -1: none
    last: list[int]  # the step's last of its stage: the gradients of its weights are there then
    tail: list[bool]  # its rank's first last slot, and all after it
    tails: list[int]  # the places of these
    held: tuple[tuple[int, ...], ...]  # the stages of each rank
    moments: tuple[tuple[Moment, ...], ...]  # of each rank
    counts: dict[int, Counter[tuple[int, int]]] = field(
        init=False, repr=False, compare=False, default_factory=dict[int, Counter[tuple[int, int]]]
    )

    def counted(self, rank: int) -> Counter[tuple[int, int]]:
        """How often a rank has each kind of slot of each of its stages: (stage, kind)."""
        if rank not in self.counts:
            slots = zip(self.rank, self.stage, self.kind, strict=True)
            self.counts[rank] = Counter((stage, kind) for own, stage, kind in slots if own == rank)
        return self.counts[rank]


class Played(NamedTuple):
    """The order of a step that is played, the one a round shorter, and rounds that are still to come."""

    order: Order
    before: Order | None
    rounds: int
    moments: tuple[tuple[Moment, ...], ...]  # of the whole step
    key: Hashable  # the same for steps of which the same is played, with as much in flight


@functools.lru_cache(maxsize=1024)
def played(schedule: str, ranks: int, microbatches: int, chunks: int) -> Played:
    """The order of a step, cut short where the pipeline is full."""
    full = max(FULL, -(-SETTLED // ranks))
    rounds = max(0, microbatches // ranks - full - 1)
    count = microbatches - rounds * ranks
    found = order(schedule, ranks, count, chunks)
    key = (schedule, ranks, count, chunks)
    if not rounds:
        return Played(found, None, 0, found.moments, key)
    before = order(schedule, ranks, count - ranks, chunks)
    moments = _longer(before.moments, found.moments, rounds)
    if moments is None:
        moments = order(schedule, ranks, microbatches, chunks).moments
    return Played(found, before, rounds, moments, key if _as_full(found.moments, moments) else (*key, rounds))


def _as_full(some: tuple[tuple[Moment, ...], ...], others: tuple[tuple[Moment, ...], ...]) -> bool:
    """Whether as much is in flight in both."""
    return [[one.flying for one in row] for row in some] == [[one.flying for one in row] for row in others]


LONG = 20_000
"""Slots of a step for which loading compiled code pays."""


@functools.lru_cache(maxsize=1024)
def order(schedule: str, ranks: int, microbatches: int, chunks: int) -> Order:
    """The slots of a step in an order in which they can be played."""
    chosen = find(schedule)
    for refusal in chosen.refusals(ranks, microbatches, chunks):
        raise BadInput(refusal.why, where=f"pp{ranks}:{schedule}", fix=refusal.way_out)
    long = ranks * microbatches * chunks > LONG and available()
    return ordered(chosen, ranks, microbatches, chunks, long or loaded(slots.__name__))


def ordered(schedule: Schedule, ranks: int, microbatches: int, chunks: int, fast: bool) -> Order:
    """The same by compiled functions, or not."""
    return _Ordered(schedule, ranks, microbatches, chunks, fast).order()


class _Ordered:
    """The slots of one step, as rows of numbers."""

    def __init__(self, schedule: Schedule, ranks: int, microbatches: int, chunks: int, fast: bool) -> None:
        self.how = (ranks, microbatches, chunks)
        self.schedule, self.ranks, self.stages = schedule, ranks, ranks * chunks
        self.kernels: Any = compiled(slots.__name__) if fast else slots
        self.row: Callable[[Sequence[int]], Any] = whole_numbers if fast else list[int]
        self.held = tuple(schedule.stages_of(place, ranks, chunks) for place in range(ranks))
        self.paths = [schedule.path(at, *self.how) for at in range(microbatches)]
        self._write()

    def _write(self) -> None:
        """The slots of all ranks, one rank after the other."""
        rows = [self._phases(place) for place in range(self.ranks)]
        room = sum(times * len(words) for row in rows for times, words in row)
        self.kind, self.stage, self.microbatch = (self.row([0] * room) for _ in range(3))
        ends = [0]
        for place, row in enumerate(rows):
            words = [word for _, own in row for word in own]
            through = [self.schedule.microbatches_of(stage, *self.how) for stage in self.held[place]]
            end = self.kernels.written(
                self.row([times for times, _ in row]),
                self.row([*accumulate((len(own) for _, own in row), initial=0)]),
                self.row([kind for kind, _ in words]),
                self.row([chunk for _, chunk in words]),
                self.ranks,
                self.row(self.held[place]),
                self.row([own.start for own in through]),
                self.row([len(own) for own in through]),
                self.row([own.step for own in through]),
                self.kind,
                self.stage,
                self.microbatch,
                ends[-1],
            )
            ends.append(int(end))
        self.row_at = self.row(ends)

    def _phases(self, place: int) -> list[tuple[int, list[tuple[int, int]]]]:
        """The phases of a rank that run at all: how often, and words as numbers (see `slots.written`)."""
        ranks, microbatches, chunks = self.how
        found = self.schedule.phases(place, ranks, microbatches, chunks)
        return [(times, _words(pattern)) for times, pattern in found if times > 0]

    def order(self) -> Order:
        firsts, lasts = (self.row([path[at] for path in self.paths]) for at in (0, -1))
        place = self.row([-1] * (2 * self.stages * len(self.paths)))
        written = (self.row_at, self.kind, self.stage)
        slot, rank, source, done = self.kernels.flattened(*written, self.microbatch, firsts, lasts, self.stages, place)
        if done < len(slot):
            raise ValueError(f"{self.schedule.name} waits for itself at pp{self.ranks} m{len(self.paths)}")
        is_last = self.row([0] * len(slot))
        self.kernels.ends(*written, self.stages, is_last)
        kind, stage, last = (_picked(values, slot) for values in (self.kind, self.stage, is_last))
        ranks, begun = _listed(rank), [len(slot)] * self.ranks
        for at in reversed([at for at, ends in enumerate(last) if ends]):
            begun[ranks[at]] = at
        tail = [at >= begun[where] for at, where in enumerate(ranks)]
        moments = tuple(tuple(self._moments(place)) for place in range(self.ranks))
        tails = [at for at, late in enumerate(tail) if late]
        return Order(self.ranks, ranks, kind, stage, _listed(source), last, tail, tails, self.held, moments)

    def _moments(self, place: int) -> Iterator[Moment]:
        """The slots of a rank in which it may hold most."""
        held = self.held[place]
        first, stop = int(self.row_at[place]), int(self.row_at[place + 1])
        kept = self.row([0] * (stop - first + 1))
        flying = self.row([0] * ((stop - first + 1) * len(held)))
        count = self.kernels.fullest(first, stop, self.kind, self.stage, self.row(held), kept, flying)
        in_flight = _listed(flying[: count * len(held)])
        slots = kept[:count]
        kinds, stages, microbatches = (_picked(values, slots) for values in (self.kind, self.stage, self.microbatch))
        for at, (kind, stage, microbatch) in enumerate(zip(kinds, stages, microbatches, strict=True)):
            own = tuple(in_flight[at * len(held) : (at + 1) * len(held)])
            yield Moment(own, stage, kind == 0, KINDS[kind], microbatch)


def _words(pattern: str) -> list[tuple[int, int]]:
    words = pattern.replace("&", " ").split()
    return [(KINDS.index(word[0]), int(word[1:]) if word[1:] else -1) for word in words]


def _listed(values: Any) -> list[int]:
    return values.tolist() if hasattr(values, "tolist") else values


def _picked(values: Any, at: Any) -> list[int]:
    """Values at some places."""
    return values[at].tolist() if hasattr(values, "tolist") else [values[n] for n in at]


def _longer(
    before: tuple[tuple[Moment, ...], ...], after: tuple[tuple[Moment, ...], ...], rounds: int
) -> tuple[tuple[Moment, ...], ...] | None:
    """Moments of a step that is so many rounds longer; None where they cannot be told from those of shorter ones."""
    found: list[tuple[Moment, ...]] = []
    for shorter, longer in zip(before, after, strict=True):
        if [(one.stage, one.forward) for one in shorter] != [(one.stage, one.forward) for one in longer]:
            return None
        row: list[Moment] = []
        for one, other in zip(shorter, longer, strict=True):
            flying = other.flying
            if flying != one.flying:
                flying = tuple(b + (b - a) * rounds for a, b in zip(one.flying, flying, strict=True))
            microbatch = other.microbatch + (other.microbatch - one.microbatch) * rounds
            row.append(Moment(flying, other.stage, other.forward, other.kind, microbatch))
        found.append(tuple(row))
    return tuple(found)
