"""From the phases of a schedule to the slots of each rank, in order: the one place where schedules are unrolled.

Kernels (`foretell.compiling`): Python runs them on lists and a compiler on arrays, since long steps have hundreds of
thousands of slots.
"""
# Rows are lists or arrays, and compilers infer types: annotations of kernels would have to lie.
# pyright: basic

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from foretell.compiling import compiled, kernel, loaded, whole_row, whole_zeros
from foretell.units import whole_numbers

if TYPE_CHECKING:
    from foretell.plan.schedule import Schedule

F, B, I, W = 0, 1, 2, 3  # noqa: E741
"""Kinds of slots, as numbers."""

LETTERS = "FBIW"

Row: TypeAlias = Any
"""Whole numbers: a list, or an array of compiled functions."""


class Phases(NamedTuple):
    """The phases of all ranks, one rank's after the other's, and the words of their patterns."""

    first: Row  # of each rank, and where the last ones end
    times: Row  # how often each runs
    begin: Row  # of each one's words, and where the last ones end
    kinds: Row  # of words
    chunks: Row  # of words; -1: the one whose turn it is, or of W the oldest weight gradient owed
    opens: Row  # whether a word begins what a rank does at a time


class Chunks(NamedTuple):
    """The stages of all ranks, one rank's after the other's, and the micro-batches that go through each."""

    held: int  # by each rank
    stage: Row
    first: Row
    count: Row
    step: Row


class Slots(NamedTuple):
    """The slots of all ranks, one rank's after the other's."""

    row_at: Row  # where each rank's begin, and where the last ones end
    kind: Row
    stage: Row
    microbatch: Row
    block: Row  # a number for what a rank does at a time


@kernel
def write_slots(phases, chunks, slots):
    """Write the slots of all ranks down."""
    ranks = len(phases.first) - 1
    at = 0
    for r in range(ranks):
        slots.row_at[r] = at
        at = write_rank(phases, chunks, slots, r, ranks, at)
    slots.row_at[ranks] = at


@kernel
def write_rank(phases, chunks, slots, rank, ranks, at):
    """The slots of one rank, from a place on; where they end."""
    held, own = chunks.held, rank * chunks.held
    given = whole_zeros(2 * held)  # forward, then backward
    turns = whole_zeros(2)
    most = 0
    for n in range(phases.first[rank], phases.first[rank + 1]):
        most += phases.times[n] * (phases.begin[n + 1] - phases.begin[n])
    owed_chunk, owed_nth, paid = whole_zeros(most), whole_zeros(most), whole_zeros(most)
    owed, oldest, block = 0, 0, 0
    for n in range(phases.first[rank], phases.first[rank + 1]):
        for _ in range(phases.times[n]):
            for word in range(phases.begin[n], phases.begin[n + 1]):
                kind, chunk = phases.kinds[word], phases.chunks[word]
                block += phases.opens[word]
                if kind == W:
                    while paid[oldest]:
                        oldest += 1
                    debt = oldest
                    while paid[debt] or (chunk >= 0 and owed_chunk[debt] != chunk):
                        debt += 1
                    paid[debt] = 1
                    chunk, nth = owed_chunk[debt], owed_nth[debt]
                else:
                    back = 0 if kind == F else 1
                    if chunk < 0:
                        chunk = turns[back] // ranks % held
                        if back:
                            chunk = held - 1 - chunk
                    turns[back] += 1
                    nth = given[back * held + chunk]
                    given[back * held + chunk] += 1
                    if kind == I:
                        owed_chunk[owed], owed_nth[owed] = chunk, nth
                        owed += 1
                if nth < chunks.count[own + chunk]:  # slots of micro-batches that do not exist are left out
                    slots.kind[at], slots.stage[at] = kind, chunks.stage[own + chunk]
                    slots.microbatch[at] = chunks.first[own + chunk] + nth * chunks.step[own + chunk]
                    slots.block[at] = block
                    at += 1
    return at


def kernels(fast: bool) -> Any:
    """This module, or the same with its functions compiled."""
    return compiled("foretell.plan.unroll") if fast else sys.modules["foretell.plan.unroll"]


def is_compiled() -> bool:
    """Whether schedules are unrolled by compiled functions in this process already."""
    return loaded("foretell.plan.unroll")


def unroll(schedule: Schedule, ranks: int, microbatches: int, chunks: int, fast: bool = False) -> Slots:
    """The slots of a step; `fast`: by compiled functions, as arrays."""
    how = (ranks, microbatches, chunks)
    row: Callable[[Sequence[int]], Row] = whole_numbers if fast else list
    run, held = kernels(fast), [schedule.stages_of(rank, ranks, chunks) for rank in range(ranks)]
    words_of = _forward_words if schedule.forward else _words
    by_rank = [[(n, words_of(own)) for n, own in schedule.run_phases(rank, *how) if n > 0] for rank in range(ranks)]
    phases = [phase for own in by_rank for phase in own]
    words = [word for _, own in phases for word in own]
    through = [schedule.microbatches_of(stage, *how) for stages in held for stage in stages]
    most = sum(times * len(own) for times, own in phases)
    slots = Slots(whole_row(ranks + 1, fast), *(whole_row(most, fast) for _ in Slots._fields[1:]))
    run.write_slots(
        Phases(
            row([*accumulate(map(len, by_rank), initial=0)]),
            row([times for times, _ in phases]),
            row([*accumulate((len(own) for _, own in phases), initial=0)]),
            *(row([word[at] for word in words]) for at in range(3)),
        ),
        Chunks(
            len(held[0]),
            row([stage for stages in held for stage in stages]),
            row([own.start for own in through]),
            row([len(own) for own in through]),
            row([own.step for own in through]),
        ),
        slots,
    )
    return slots


@functools.lru_cache(maxsize=1024)
def _words(pattern: str) -> tuple[tuple[int, int, int], ...]:
    """The words of a pattern as numbers: kind, chunk, and whether a block begins with it."""
    return tuple(
        (LETTERS.index(word[0]), int(word[1:]) if word[1:] else -1, int(not number))
        for together in pattern.split()
        for number, word in enumerate(together.split("&"))
    )


def _forward_words(pattern: str) -> tuple[tuple[int, int, int], ...]:
    """The forward slots of a pattern, each by itself."""
    return tuple((kind, chunk, 1) for kind, chunk, _ in _words(pattern) if kind == F)
