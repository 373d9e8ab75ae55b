"""In which order a pipeline's ranks work: what every schedule says about itself, and what follows from it.

The model is cut into stages in a row; a rank holds one or more of them (chunks). Each micro-batch
goes forward through the stages and back. A schedule says which stages a rank holds and writes its
list of slots, in order:

    F  forward          B  whole backward
    I  the part of the backward that gives the gradient of the inputs: the stage before waits for it
    W  the part that gives the gradient of the weights: nobody waits for it

A schedule is a few phases per rank, each a pattern and how often it runs. In a pattern `F0` is the
next forward of the rank's chunk 0 and `F` that of the chunk whose turn it is (rounds of as many
micro-batches as ranks); `W` is the oldest weight gradient still owed, `W1` the oldest of chunk 1;
`F0&B1` are two that run together. `plan.unroll` turns phases into slots.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import ClassVar, Literal, NamedTuple, TypeAlias

import msgspec

from foretell.errors import BadInput, unknown
from foretell.plan.refusal import Refusal
from foretell.plan.unroll import Slots, unroll
from foretell.registry import OpenSet
from foretell.units import Quantity, at_least

Kind: TypeAlias = Literal["F", "B", "I", "W"]

Phase: TypeAlias = tuple[int, str]
"""How often a pattern runs, and the pattern: (3, "F B")."""

SLOT_KINDS: tuple[Kind, ...] = ("F", "B", "I", "W")
"""In the order of their numbers, where slots are rows of numbers."""


class Slot(NamedTuple):
    """One micro-batch's turn at one stage."""

    kind: Kind
    stage: int
    microbatch: int


Block: TypeAlias = tuple[Slot, ...]
"""What a rank does at a time: one slot, or a forward and a backward that run together."""


class ScheduledBlock(NamedTuple):
    """A block in time, on its rank."""

    block: Block
    start: Quantity
    end: Quantity


class PassTimes(NamedTuple):
    """Seconds of one micro-batch in 1/ranks of the model."""

    forward: Quantity
    input_gradient: Quantity
    weight_gradient: Quantity
    together: Quantity  # a forward and a whole backward that run together

    @property
    def backward(self) -> Quantity:
        return self.input_gradient + self.weight_gradient

    def per_slot(self, slots: float) -> dict[str, Quantity]:
        """Seconds of each kind of block when a rank has so many slots for each micro-batch."""
        kinds = {"F": self.forward, "I": self.input_gradient, "W": self.weight_gradient}
        kinds |= {"B": self.backward, "F&B": self.together, "B&F": self.together}
        return {kind: seconds / slots for kind, seconds in kinds.items()}


class Schedule(msgspec.Struct, frozen=True):
    """A pipeline schedule. `chunks` is always the number of stages that each rank holds."""

    name: ClassVar[str]
    """How it is written: `1f1b` of `pp8:1f1b`."""

    summary: ClassVar[str]
    references: ClassVar[tuple[str, ...]]
    least_chunks: ClassVar[int] = 1
    most_chunks: ClassVar[int | None] = 1
    """None: as many as the model has layers for."""

    folded: ClassVar[bool] = False
    """Stages go 0..p-1 and back p-1..0 over the ranks (a V); else round and round."""

    copies: ClassVar[int] = 1
    """How many times the model's weights lie on the pipeline."""

    splits_backward: ClassVar[bool] = False
    flushes: ClassVar[bool] = True
    """Whether the pipeline runs empty before the weights change, so that all see the same weights."""

    forward: bool = False
    """Whether its forward slots run alone, in their order: nothing is trained, and no micro-batch comes back."""

    paired: bool = False
    """Whether each backward runs together with the forward after it, of another micro-batch."""

    @abc.abstractmethod
    def phases(self, rank: int, ranks: int, microbatches: int, chunks: int) -> list[Phase]:
        """What a rank does. Slots of micro-batches that do not exist are left out by the writer."""

    def run_phases(self, rank: int, ranks: int, microbatches: int, chunks: int) -> list[Phase]:
        """The same as they run: in pairs, one forward more comes first, so that the two do not wait for each other.

        A pair goes layer by layer, and the backward lets go of a layer for each that the forward makes (Megatron-Core
        0.15, combined_1f1b.py): no more is held than before it, but for one layer. So the backward stands first.
        """
        found = self.phases(rank, ranks, microbatches, chunks)
        if not self.paired:
            return found
        (ahead, first), (times, both), (behind, last) = found
        if (first, both, last) != ("F", "F B", "B"):
            raise ValueError(f"{self.name} has no forwards and backwards in turn to pair")
        more = min(1, times)
        return [(ahead + more, first), (times - more, "B&F"), (behind + more, last)]

    @abc.abstractmethod
    def in_flight(self, rank: int, ranks: int, microbatches: int, chunks: int) -> float:
        """The most micro-batches whose activations a rank holds, from F to the end of B or W.

        In units of one micro-batch's activations in 1/ranks of the model.
        """

    def closed_form(self, ranks: int, chunks: int, times: PassTimes) -> Quantity | None:
        """The bubble that its paper gives; None where the paper has no formula."""
        return None

    def rules(self, ranks: int, microbatches: int, chunks: int) -> Iterator[Refusal]:
        """The rules of its own that these numbers break."""
        return iter(())

    def microbatches_of(self, stage: int, ranks: int, microbatches: int, chunks: int) -> range:
        """The micro-batches that go through a stage."""
        return range(microbatches)

    def path(self, microbatch: int, ranks: int, microbatches: int, chunks: int) -> range:
        """The stages that a micro-batch goes through, in forward order."""
        return range(ranks * chunks)

    def weight_versions(self, rank: int, ranks: int) -> int:
        """How many versions of its weights a rank holds at once."""
        return 1

    def staleness(self, rank: int, ranks: int) -> int:
        """How many updates a rank's weights have had between a micro-batch's forward and its own update."""
        return 0

    def forward_only(self) -> Schedule:
        """The same stages and micro-batches without a backward pass."""
        return msgspec.structs.replace(self, forward=True)

    def in_pairs(self) -> Schedule:
        """The same stages and micro-batches, forwards and backwards in turn as pairs that run together."""
        return msgspec.structs.replace(self, paired=True)

    def rank_of(self, stage: int, ranks: int, chunks: int) -> int:
        """The rank that holds a stage."""
        turn, place = divmod(stage, ranks)
        return ranks - 1 - place if self.folded and turn % 2 else place

    def stages_of(self, rank: int, ranks: int, chunks: int) -> tuple[int, ...]:
        """The stages that a rank holds, its chunk 0 first."""
        return tuple(stage for stage in range(ranks * chunks) if self.rank_of(stage, ranks, chunks) == rank)

    def part_of(self, stage: int, ranks: int, chunks: int) -> int:
        """Which of the model's parts, first to last, a stage computes. Copies compute the same part."""
        return stage % self.parts(ranks, chunks)

    def parts(self, ranks: int, chunks: int) -> int:
        """How many parts the model is cut into."""
        return ranks * chunks // self.copies

    def refusals(self, ranks: int, microbatches: int, chunks: int) -> Iterator[Refusal]:
        """The rules that these numbers break."""
        if not self.least_chunks <= chunks <= (chunks if self.most_chunks is None else self.most_chunks):
            yield _wrong_chunks(self, chunks)
        if min(ranks, microbatches) < 1:
            why = f"a pipeline has ranks and micro-batches, and this one has pp{ranks} and m{microbatches}"
            yield Refusal("something to schedule", why, "pp1 and +m1 are the least")
        else:
            yield from self.rules(ranks, microbatches, chunks)

    def blocks(self, ranks: int, microbatches: int, chunks: int) -> tuple[tuple[Block, ...], ...]:
        """What each rank does, in order; slots that run together stand together."""
        for refusal in self.refusals(ranks, microbatches, chunks):
            raise BadInput(refusal.why, where=f"pp{ranks}:{self.name}", fix=refusal.way_out)
        slots = unroll(self, ranks, microbatches, chunks)
        return tuple(_blocks(slots, rank) for rank in range(ranks))

    def order(self, ranks: int, microbatches: int, chunks: int) -> tuple[tuple[Slot, ...], ...]:
        """The slots of each rank, in order."""
        per_rank = self.blocks(ranks, microbatches, chunks)
        return tuple(tuple(slot for block in blocks for slot in block) for blocks in per_rank)

    def bubble(
        self,
        ranks: int,
        microbatches: int,
        chunks: int,
        forward: Quantity,
        input_gradient: Quantity,
        weight_gradient: Quantity,
        together: Quantity | None = None,
    ) -> Quantity:
        """Idle time of a step at the worst rank: its paper's formula, else found by going through the list.

        Times are those of one micro-batch in 1/ranks of the model; `together` is that of a forward and
        a backward that run together, their sum if None.
        """
        both = forward + input_gradient + weight_gradient if together is None else together
        times = PassTimes(forward, input_gradient, weight_gradient, both)
        formula = self.closed_form(ranks, chunks, times)
        return self.idle(ranks, microbatches, chunks, times) if formula is None else formula

    def idle(self, ranks: int, microbatches: int, chunks: int, times: PassTimes) -> Quantity:
        """Idle time between a rank's first slot and its last, at the worst rank, by going through the list.

        Waiting for the first input does not count (Qi et al. 2024, section 5.3 takes the longest time of a
        stage): where the optimizer's step waits for nobody, a rank that starts late was busy until then.
        """
        seconds = times.per_slot(chunks / self.copies)
        rows = replay(self, ranks, microbatches, chunks, seconds)
        gaps = [runs[-1].end - runs[0].start - sum(run.end - run.start for run in runs) for runs in rows]
        return functools.reduce(at_least, gaps)


def _wrong_chunks(schedule: Schedule, chunks: int) -> Refusal:
    least, most = schedule.least_chunks, schedule.most_chunks
    allowed = f"{least}" if most == least else f"at least {least}"
    why = f"{schedule.name} has {allowed} stage{'s' if least > 1 else ''} on each rank, not {chunks}"
    word = f",v{least}" if most is None else ""
    return Refusal("stages per rank", why, f"{schedule.name}{word}")


def _blocks(slots: Slots, rank: int) -> tuple[Block, ...]:
    """The slots of one rank; those that run together stand together."""
    own = range(slots.row_at[rank], slots.row_at[rank + 1])
    return tuple(
        tuple(Slot(SLOT_KINDS[slots.kind[at]], slots.stage[at], slots.microbatch[at]) for at in together)
        for _, together in groupby(own, lambda at: slots.block[at])
    )


def waits_for(slot: Slot, path: range) -> Slot | None:
    """The slot that must be over before this one starts, if any; an `I` may be part of a `B`."""
    kind, stage, microbatch = slot
    if kind == "W":
        return Slot("I", stage, microbatch)
    if kind == "F":
        return None if stage == path[0] else Slot("F", stage - 1, microbatch)
    return Slot("F", stage, microbatch) if stage == path[-1] else Slot("I", stage + 1, microbatch)


class _Replay:
    """A pipeline under way: what each rank has still to do, what is over, and when."""

    def __init__(self, todo: list[list[tuple[Block, list[Slot]]]], seconds: Mapping[str, Quantity]) -> None:
        self._todo = [list(reversed(blocks)) for blocks in todo]
        self._seconds = seconds
        self._over: dict[Slot, Quantity] = {}
        self.runs: list[list[ScheduledBlock]] = [[] for _ in todo]

    def busy(self) -> bool:
        return any(self._todo)

    def advance(self, rank: int) -> bool:
        """Run the next block of a rank, if all that it waits for is over."""
        if not self._todo[rank]:
            return False
        block, needs = self._todo[rank][-1]
        if not all(need in self._over for need in needs):
            return False
        self._todo[rank].pop()
        seconds = self._seconds["&".join(slot.kind for slot in block)]
        free = self.runs[rank][-1].end if self.runs[rank] else 0 * seconds
        start = functools.reduce(at_least, (self._over[need] for need in needs), free)
        self.runs[rank].append(ScheduledBlock(block, start, start + seconds))
        self._over.update({_as_needed(slot): start + seconds for slot in block})
        return True


def _as_needed(slot: Slot) -> Slot:
    """A whole backward gives what its first part gives."""
    return slot._replace(kind="I") if slot.kind == "B" else slot


def replay(
    schedule: Schedule, ranks: int, microbatches: int, chunks: int, seconds: Mapping[str, Quantity]
) -> tuple[tuple[ScheduledBlock, ...], ...]:
    """Each rank's blocks in time: each starts when its rank is free and what it waits for is over.

    `seconds` are those of a block of each kind: F, B, I, W and F&B. Sending takes no time.
    """

    def needs(block: Block) -> list[Slot]:
        paths = (schedule.path(slot.microbatch, ranks, microbatches, chunks) for slot in block)
        return [need for need in map(waits_for, block, paths) if need]

    per_rank = schedule.blocks(ranks, microbatches, chunks)
    under_way = _Replay([[(block, needs(block)) for block in blocks] for blocks in per_rank], seconds)
    while under_way.busy():
        if not sum(map(under_way.advance, range(ranks))):
            raise ValueError(f"{schedule.name} waits for itself at pp{ranks} m{microbatches} v{chunks}")
    return tuple(map(tuple, under_way.runs))


SCHEDULES = OpenSet("foretell.plan.schedules", "schedule")


@functools.cache
def schedules() -> dict[str, Schedule]:
    """Every schedule by its name. A file says its name, since `1f1b` cannot be a file's."""
    found: list[Schedule] = [SCHEDULES[member].SCHEDULE for member in SCHEDULES]
    return {schedule.name: schedule for schedule in found}


def find(name: str) -> Schedule:
    """The schedule of this name."""
    known = schedules()
    if name not in known:
        raise unknown("schedule", name, known)
    return known[name]


UNIT = {"F": 1, "I": 1, "W": 1, "B": 2, "F&B": 3, "B&F": 3}
"""Columns of a drawn timeline: the three parts take equally long, as the papers draw them."""


def draw(name: str, ranks: int, microbatches: int, chunks: int | None = None) -> str:
    """A timeline, one row a rank: F, I and W take one column, B two; a dot is an idle column.

    With several stages on a rank, a b c say which; chunks is the least that the schedule has, if None.
    """
    schedule = find(name)
    count = schedule.least_chunks if chunks is None else chunks
    rows = replay(schedule, ranks, microbatches, count, UNIT)
    held = [schedule.stages_of(rank, ranks, count) for rank in range(ranks)]
    width = 1 + max(len(_label(slot, held[rank])) for rank, runs in enumerate(rows) for run in runs for slot in run[0])
    lines = (f"rank {rank}  {_row(runs, held[rank], width)}".rstrip() for rank, runs in enumerate(rows))
    return "\n".join(lines)


def _label(slot: Slot, held: tuple[int, ...]) -> str:
    chunk = chr(ord("a") + held.index(slot.stage)) if len(held) > 1 else ""
    return f"{slot.kind}{slot.microbatch}{chunk}"


def _row(runs: Iterable[ScheduledBlock], held: tuple[int, ...], width: int) -> str:
    now, text = 0, ""
    for block, start, end in runs:
        text += ".".ljust(width) * (start - now)
        label = "&".join(_label(slot, held) for slot in block)
        text += label.ljust((end - start) * width - 1, "-" if end - start > 1 else " ") + " "
        now = end
    return text
