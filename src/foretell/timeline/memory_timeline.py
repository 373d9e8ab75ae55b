"""What a rank holds over a step, slot by slot, by what it is for: one rule for the peak, its parts and the chart.

The rule is the engine's (`timeline.peak_memory`). A prediction asks it for the moments in which a rank may hold most,
a chart for all slots of the fullest rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from foretell.compiling import real_row
from foretell.cost.memory import MemoryConstants, MemoryUse
from foretell.cost.price import PricedProgram
from foretell.hardware.cluster import Cluster
from foretell.plan.schedule import Slot
from foretell.timeline.engine import PARTS
from foretell.timeline.one_plan import OnePlan
from foretell.timeline.plan_table import unrolled
from foretell.timeline.unroll import every_slot, is_array

PASS = {"F": "forward", "B": "backward", "I": "backward", "W": "weight gradients"}

ALWAYS = ("weights", "gradients", "states", "activations", "working")
"""Parts that are listed also where they are nothing."""

UPDATE = -1
"""The moment of the update of weights, among those of a rank."""


class MemoryMoment(NamedTuple):
    """A rank at the fullest of one of its slots, or in the update of its weights."""

    slot: Slot | None  # None: the update
    in_flight: dict[int, int]  # micro-batches before the slot, by the stages of the rank
    parts: dict[str, float]  # bytes in tensors
    allocated: float  # all of them

    @property
    def name(self) -> str:
        return f"{self.slot.kind}{self.slot.microbatch}" if self.slot else "update"

    def __str__(self) -> str:
        if self.slot is None:
            return "the update of weights"
        return f"the {PASS[self.slot.kind]} pass of micro-batch {self.slot.microbatch}"


class RankPeak(NamedTuple):
    """The fullest moment of the fullest rank, and bytes of each pipeline rank as the device reports them."""

    rank: int
    moment: MemoryMoment
    by_stage: tuple[float, ...]


class MemoryTimeline(NamedTuple):
    """The fullest pipeline rank over a step: its slots in order, then the update."""

    rank: int
    ranks: int  # of the pipeline
    moments: tuple[MemoryMoment, ...]
    constants: MemoryConstants

    @property
    def persistent(self) -> float:
        """Bytes in tensors that are there in every slot."""
        return sum(self.moments[0].parts.get(name, 0.0) for name in PARTS[:5])

    @property
    def device(self) -> float:
        """The most that the device reports."""
        return max(device_bytes(self.constants, moment.allocated) for moment in self.moments)


def device_bytes(constants: MemoryConstants, allocated: float) -> float:
    """What the device reports of so many bytes in tensors: what the allocator reserves for them, and contexts."""
    return allocated * constants.reserved + constants.context


def memory_use(one: OnePlan, among: Sequence[int] = ()) -> MemoryUse:
    """What the fullest rank of a plan holds, or the fullest of some."""
    constants = one.plan.constants
    rank, moment, by_stage = rank_peak(one, among)
    reserved = moment.allocated * constants.reserved
    buffers = constants.communicators
    on_top = {"allocator": reserved - moment.allocated, "context": by_stage[rank] - reserved - buffers}
    on_top |= {"communicators": buffers} if buffers else {}
    where = f" on pipeline rank {rank}" if len(by_stage) > 1 else ""
    return MemoryUse(moment.allocated, reserved, by_stage[rank], by_stage, moment.parts | on_top, f"{moment}{where}")


def plan_memory(plan: PricedProgram, cluster: Cluster, among: Sequence[int] = ()) -> MemoryUse:
    """The same of a plan that is in no table yet."""
    return memory_use(OnePlan.of(plan, cluster, unrolled(plan)), among)


def rank_peak(one: OnePlan, among: Sequence[int] = ()) -> RankPeak:
    """The rank and the moment that decide a plan's memory, of all ranks or of some."""
    ranks = range(one.plan.program.ranks)
    peaks = [one.kernels.rank_memory(one.tables, one.plans, 0, rank) for rank in ranks]
    by_stage = tuple(device_bytes(one.plan.constants, allocated) for allocated, _ in peaks)
    rank = max(among or ranks, key=lambda at: by_stage[at])
    return RankPeak(rank, _moment(one, rank, peaks[rank][1]), by_stage)


def plan_peak(plan: PricedProgram, cluster: Cluster, among: Sequence[int] = ()) -> RankPeak:
    """The same of a plan that is in no table yet."""
    return rank_peak(OnePlan.of(plan, cluster, unrolled(plan)), among)


def memory_timeline(plan: PricedProgram, cluster: Cluster) -> MemoryTimeline:
    """The fullest rank in each of its slots."""
    rank = plan_peak(plan, cluster).rank
    program = plan.program
    steps = every_slot(program.schedule, program.ranks, program.plan.microbatches, program.chunks)
    one = OnePlan.of(plan, cluster, steps)
    slots = range(int(steps.moments.begin[rank]), int(steps.moments.begin[rank + 1]))
    moments = tuple(_moment(one, rank, at) for at in (*slots, UPDATE))
    return MemoryTimeline(rank, program.ranks, moments, plan.constants)


def _moment(one: OnePlan, rank: int, at: int) -> MemoryMoment:
    """A rank at a moment of its order."""
    sizes = real_row(len(PARTS), is_array(one.tables.f))
    allocated = float(one.kernels.moment_bytes(one.tables, one.plans, 0, rank, at, sizes))
    parts = dict(zip(PARTS, map(float, sizes), strict=True))
    if at == UPDATE:
        listed = {name: size for name, size in parts.items() if size or name in ALWAYS[:3]}
        return MemoryMoment(None, {}, listed, allocated)
    found = one.steps.moments.one(at)
    stages = one.steps.order.held[rank]
    in_flight = {stage: int(count) for stage, count in zip(stages, found.flying, strict=True)}
    listed = {name: size for name, size in parts.items() if size or name in ALWAYS}
    return MemoryMoment(found.slot, in_flight, listed, allocated)
