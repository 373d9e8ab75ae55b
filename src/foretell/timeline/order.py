"""Orders of slots as numbers: who does what, which slot waits for which, and what is in flight when.

An order depends on the schedule, the ranks, the micro-batches and the stages of a rank, on nothing else. Once a
pipeline is full, each round of as many micro-batches as ranks adds the same, or nearly so where a host gets ahead
of its device very slowly (docs/timeline.md): long steps are played up to there.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from foretell.cost.layers import KINDS
from foretell.plan.schedule import Slot, find, waits_for

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
    last: list[bool]  # the step's last of its stage: the gradients of its weights are there then
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


@functools.lru_cache(maxsize=1024)
def played(schedule: str, ranks: int, microbatches: int, chunks: int) -> Played:
    """The order of a step, cut short where the pipeline is full."""
    full = max(FULL, -(-SETTLED // ranks))
    rounds = max(0, microbatches // ranks - full - 1)
    count = microbatches - rounds * ranks
    found = order(schedule, ranks, count, chunks)
    if not rounds:
        return Played(found, None, 0, found.moments)
    before = order(schedule, ranks, count - ranks, chunks)
    moments = _longer(before.moments, found.moments, rounds)
    return Played(found, before, rounds, moments or order(schedule, ranks, microbatches, chunks).moments)


@functools.lru_cache(maxsize=1024)
def order(schedule: str, ranks: int, microbatches: int, chunks: int) -> Order:
    """The slots of a step in an order in which they can be played."""
    chosen = find(schedule)
    rows = chosen.order(ranks, microbatches, chunks)
    held = tuple(chosen.stages_of(place, ranks, chunks) for place in range(ranks))
    paths = {at: chosen.path(at, ranks, microbatches, chunks) for at in range(microbatches)}
    flat = _flattened(rows, paths)
    place = {slot: at for at, (_, slot) in enumerate(flat)}
    ends = [_ends(row) for row in rows]
    last = [ends[rank].get(slot.stage) == slot for rank, slot in flat]
    tail, begun = list[bool](), [False] * ranks
    for (rank, _), is_last in zip(flat, last, strict=True):
        begun[rank] |= is_last
        tail.append(begun[rank])
    return Order(
        ranks,
        [rank for rank, _ in flat],
        [KINDS.index(slot.kind) for _, slot in flat],
        [slot.stage for _, slot in flat],
        [_place(place, waits_for(slot, paths[slot.microbatch])) for _, slot in flat],
        last,
        tail,
        [at for at, late in enumerate(tail) if late],
        held,
        tuple(tuple(_moments(row, own)) for row, own in zip(rows, held, strict=True)),
    )


def _ends(row: Sequence[Slot]) -> dict[int, Slot]:
    """The last slot of each stage that makes gradients of weights."""
    return {slot.stage: slot for slot in row if slot.kind in ("B", "W")}


def _place(places: dict[Slot, int], slot: Slot | None) -> int:
    if slot is None:
        return -1
    return places[slot] if slot in places else places[slot._replace(kind="B")]  # a whole backward has its first part


def _flattened(rows: Sequence[Sequence[Slot]], paths: dict[int, range]) -> list[tuple[int, Slot]]:
    """The slots of all ranks in a row, each after the one it waits for."""
    found: list[tuple[int, Slot]] = []
    over: set[Slot] = set()
    at = [0] * len(rows)
    waiting = True
    while waiting:
        waiting = False
        for rank, row in enumerate(rows):
            while at[rank] < len(row):
                slot = row[at[rank]]
                needs = waits_for(slot, paths[slot.microbatch])
                if needs is not None and needs not in over:
                    break
                over.add(slot._replace(kind="I") if slot.kind == "B" else slot)
                found.append((rank, slot))
                at[rank] += 1
                waiting = True
    return found


# What is in flight. ----------------------------------------------------------------------------------


def _moments(row: Sequence[Slot], held: tuple[int, ...]) -> list[Moment]:
    """The slots of a rank in which it may hold most: no other of their kind has as much of everything in flight."""
    flying = [0] * len(held)
    seen: dict[tuple[tuple[int, ...], int, bool], Moment] = {}
    for slot in row:
        chunk = held.index(slot.stage)
        key = (tuple(flying), slot.stage, slot.kind == "F")
        if key not in seen:
            seen[key] = Moment(tuple(flying), slot.stage, slot.kind == "F", slot.kind, slot.microbatch)
        if slot.kind == "F":
            flying[chunk] += 1
        elif slot.kind != "I":
            flying[chunk] -= 1
    return _most(list(seen.values()))


def _most(moments: list[Moment]) -> list[Moment]:
    found: dict[tuple[int, bool], list[Moment]] = {}
    for one in moments:
        own = found.setdefault((one.stage, one.forward), [])
        if not any(_covers(other, one) for other in own):
            own[:] = [other for other in own if not _covers(one, other)]
            own.append(one)
    kept = {id(one) for own in found.values() for one in own}
    return [one for one in moments if id(one) in kept]


def _covers(one: Moment, other: Moment) -> bool:
    return all(more >= less for more, less in zip(one.flying, other.flying, strict=True))


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
            grown = tuple(b + (b - a) * rounds for a, b in zip(one.flying, other.flying, strict=True))
            microbatch = other.microbatch + (other.microbatch - one.microbatch) * rounds
            row.append(other._replace(flying=grown, microbatch=microbatch))
        found.append(tuple(row))
    return tuple(found)
