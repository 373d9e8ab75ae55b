"""All plans of one mesh as rows of the engine's tables: every set of policies with every way to run its pipeline."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy

from foretell.cost.host import overlap_share
from foretell.cost.memory import MemoryConstants, held_back, memory_constants
from foretell.cost.prices import Prices
from foretell.oracle.local_programs import Executed, LocalQuestion, PolicySet, Programs, RoughPrograms
from foretell.oracle.lower_bounds import ROUNDING, least_waits
from foretell.oracle.mesh_bounds import MeshBounds
from foretell.oracle.parts import PartitionRow, Parts, StageTraffic, StateRow
from foretell.plan.job import batch_ranks
from foretell.plan.plan import Plan
from foretell.plan.policies.a2a_overlap import A2AOverlap
from foretell.plan.policies.batchnorm import BatchNorm
from foretell.plan.policies.imbalance import Imbalance
from foretell.plan.policies.offload import Offload
from foretell.plan.policies.precision import Precision
from foretell.plan.policies.recompute import Recompute
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.strategy import Strategy
from foretell.program.expanded import Axis
from foretell.program.lower import space_axes
from foretell.program.mesh import mesh, stride
from foretell.program.rank_program import RankProgram
from foretell.timeline.plan_table import PlanRow

Columns: TypeAlias = dict[str, Any]
"""Rows of plans in the tables, and where in the space they are: for each column an array."""

UNROLLED = ("order", "moments", "shorter_order", "rounds")
"""What a plan's row has of its schedule."""


class MeshPlans(NamedTuple):
    """Plans of a mesh: for each of some sets of policies every way to run its pipeline."""

    shape: tuple[int, int]  # how many of these
    columns: Columns  # each is repeated until it has this shape

    @property
    def size(self) -> int:
        return self.shape[0] * self.shape[1]


class PipelineVariants(NamedTuple):
    """Which of a mesh's pipelines takes which of its counts of micro-batches: a row each."""

    number: int
    pipelines: list[PartitionRow]  # those that any count suits
    own: Any  # the place of the pipeline among these
    count: Any  # the place of the count among those of the mesh
    signatures: Any  # of stages
    place: Any  # of the pipeline among those of the space
    microbatches: Any
    partition: Any  # the row of each
    splits: Any

    def only(self, alive: Any, parts: Parts) -> PipelineVariants:
        """Those that are alive, a truth for each, with their pipelines alone."""
        if alive.all():
            return self
        rows = numpy.flatnonzero(alive)
        kept, own = numpy.unique(self.own[rows], return_inverse=True)
        return PipelineVariants(
            parts.number(("some variants", self.number, alive.tobytes())),
            [self.pipelines[at] for at in kept.tolist()],
            own=own,
            count=self.count[rows],
            signatures=self.signatures[rows],
            place=self.place[rows],
            microbatches=self.microbatches[rows],
            partition=self.partition[rows],
            splits=self.splits[rows],
        )

    def unrolled(self, parts: Parts, paired: bool) -> Columns:
        """The orders in which they are played: asked for when they are priced, since bounds need none."""
        if self.number not in parts.mesh_orders:
            own: list[int] = self.own.tolist()
            played = zip(own, self.microbatches.tolist(), strict=True)
            found = [parts.unrolled(self.pipelines[at].cut, count, paired) for at, count in played]
            parts.mesh_orders[self.number] = {name: numpy.array([row[name] for row in found]) for name in UNROLLED}
        return parts.mesh_orders[self.number]

    def each(self, figures: Sequence[Sequence[int]]) -> Any:
        """Figures of pipelines for each of some sets of policies, as figures of each variant."""
        return numpy.array(figures, dtype=numpy.int64)[:, self.own]


class MeshTraffic(NamedTuple):
    """The weight traffic of a mesh."""

    pipelines: list[StageTraffic]  # with each of them
    gathered: int  # a number for the bytes that they gather
    rows: list[int]  # with each


class MeshPrices(NamedTuple):
    """How a trainer runs a mesh: its prices, the row of how it launches, and how fast gradients travel meanwhile."""

    prices: Prices
    launch_profile: int
    overlap: float


class PolicyRow(NamedTuple):
    """What is known of a mesh with a set of policies: rows of the tables."""

    program: int  # of the first number of samples
    sizes: list[int]  # how many rows after it that of each count of micro-batches is
    sends: list[int]  # with each pipeline, of the first number of samples
    peaks: list[int]
    traffic: list[int]
    launch_profile: int
    overlap: float


class MeshRows:
    """One mesh: the parts of its plans, priced, and its plans as rows.

    `chosen` are sets of policies that leave the model the same, by their places among those of the space.
    """

    def __init__(self, parts: Parts, axes: tuple[Strategy, ...], chosen: Mapping[int, PolicySet]) -> None:
        self.parts, self.axes, self.chosen, self.space = parts, axes, chosen, parts.space
        self.plan = Plan(axes, next(iter(chosen.values())).policies)
        self.mesh, self.paired = mesh(self.plan), self.plan.policy(A2AOverlap).on
        self.model = parts.lowered(self.mesh, self.plan)
        self.ranks = next((axis.ranks for axis in axes if isinstance(axis, Pipeline)), 1)
        self.counts = self.space.counts(axes)
        share = self.space.job.batch // batch_ranks(self.plan)
        self.samples = [share // count for count in self.counts]
        self.named = [Axis(axis.name, axis.ranks, stride(self.mesh, (axis.name,))) for axis in self.mesh]
        self.local_axes = space_axes(self.mesh, self.plan, self.space.graph)
        where = tuple((axis.name, axis.stride) for axis in self.named if axis.name not in ("pp", "dp", "shard"))
        self.where = parts.number((self.model.number, self.local_axes, where))
        self.executions: dict[int, MeshPrices] = {}
        self.states: dict[Hashable, StateRow] = {}
        self.traffics: dict[Hashable, MeshTraffic] = {}
        self.sends: dict[Hashable, list[int]] = {}
        self.gathered: dict[bool, float] = {}  # bytes for each parameter in the update, by whether it is on the host

    @functools.cached_property
    def allowed(self) -> list[int]:
        """The sets of policies that go with the mesh."""
        return [which for which, one in self.chosen.items() if self.space.allowed(self.axes, one.policies)]

    @property
    def ways(self) -> int:
        """How many plans the mesh has with each set of policies."""
        return len(self._variants().own)

    def blocks(self, number: int, alive: Mapping[int, Any]) -> Iterator[MeshPlans]:
        """Plans of the mesh, which has this number: one block, or none.

        `alive`: for each set of policies that is wanted, whether each variant is.
        """
        variants, wanted = self._variants(), list(alive)
        if alive:
            variants = variants.only(functools.reduce(numpy.logical_or, alive.values()), self.parts)
        if wanted and len(variants.own):
            rows = [self._row(self.chosen[which], variants) for which in wanted]
            named = {"mesh": number, "place": variants.place, "microbatches": variants.microbatches}
            own = {"which": numpy.array(wanted)[:, None], **self._plans(rows, variants, wanted).columns()}
            yield MeshPlans((len(wanted), len(variants.own)), {**named, **own})

    @property
    def everything(self) -> Any:
        """That every variant is alive."""
        return numpy.ones(self.ways, dtype=bool)

    # bounds

    def least_seconds(self, bounds: MeshBounds, which: int) -> Any:
        """Seconds that the plans of a set of policies take at least: a figure for each variant."""
        variants, how, programs = self._variants(), *self._running(which)
        key = (programs.number, variants.number, how.launch_profile, self.samples[0])
        if key not in bounds.seconds:
            bounds.seconds[key] = found = numpy.empty(len(variants.own))
            at = self._places(programs)
            for place, pipeline in enumerate(variants.pipelines):
                mine = numpy.flatnonzero(variants.own == place)
                sizes, counts = at[variants.count[mine]], variants.microbatches[mine]
                found[mine] = bounds.least_seconds(programs, pipeline, how.launch_profile, sizes, counts)
        return bounds.seconds[key]

    def least_waits(self, which: int) -> float:
        """Seconds that none of them is faster than, since its layers wait for messages so long."""
        programs, samples, counts = self._running(which)[1], self._places, numpy.array(self.counts)
        return float(least_waits(self._variants().pipelines[0].counts, programs.waits, samples(programs), counts).min())

    def least_bytes(self, bounds: MeshBounds, which: int, alive: Any = None, room: float = float("inf")) -> Any:
        """The same of bytes, of variants that are alive (None: of all); where what rests needs more than `room`, of
        that alone."""
        alive = self.everything if alive is None else alive
        reserved, context = self.constants.reserved, self.constants.context
        variants, chosen, (how, programs) = self._variants(), self.chosen[which], self._running(which)
        state = self._state(chosen, how.prices, programs.parts[0][0])
        at, found = self._places(programs), numpy.zeros(len(variants.own))
        places: list[int] = numpy.unique(variants.own[alive]).tolist()
        for place in places:
            mine, pipeline = numpy.flatnonzero((variants.own == place) & alive), variants.pipelines[place]
            resting = bounds.resting(self.model, programs.parts[0][0], pipeline, state)
            found[mine] = resting.max()
            if resting.max() * reserved + context <= room:
                sizes, counts = at[variants.count[mine]], variants.microbatches[mine]
                held = bounds.held(programs, pipeline, chosen, sizes, counts)
                found[mine] = (resting[:, None] + held).max(axis=0) * ROUNDING
        return found * reserved + context

    def _running(self, which: int) -> tuple[MeshPrices, RoughPrograms]:
        """How the plans of a set of policies run, near enough for bounds."""
        chosen = self.chosen[which]
        executed = self.parts.executed(chosen)
        how = self._prices(chosen, executed)
        return how, self.parts.local.roughly(self._local(chosen, executed, how.prices))

    def _places(self, programs: RoughPrograms) -> Any:
        """Of each count of micro-batches where its number of samples is."""
        return numpy.array([programs.place[count] for count in self.samples], dtype=numpy.int64)

    def plainest(self) -> list[int]:
        """Of sets of policies that run alike otherwise, those that recompute least and keep most on the device: the
        others only add to their seconds."""
        first: dict[Hashable, int] = {}
        for which in self.allowed:
            one = self.chosen[which]
            key = (one.execution, one.plan.policy(Imbalance), one.plan.policy(BatchNorm))
            now = first.setdefault(key, which)
            if _added(one) < _added(self.chosen[now]):
                first[key] = which
        return list(first.values())

    def _plans(self, rows: Sequence[PolicyRow], variants: PipelineVariants, wanted: Sequence[int]) -> PlanRow:
        """All variants with each set of policies: a row of arrays for each set, and a column for each variant."""
        programs, sizes, sends, peaks, traffic, profile, overlap = zip(*rows, strict=True)
        return PlanRow(
            program=numpy.array(programs)[:, None],
            partition=variants.partition,
            sends=variants.each(sends),
            peaks=variants.each(peaks),
            traffic=variants.each(traffic),
            launch_profile=numpy.array(profile)[:, None],
            overlap=numpy.array(overlap)[:, None],
            splits=variants.splits,
            unrolled=variants.unrolled(self.parts, self.paired),
            constants=self._constants(variants, wanted),
            size=numpy.array(sizes)[:, variants.count],
            signatures=variants.signatures,
        )

    def _constants(self, variants: PipelineVariants, wanted: Sequence[int]) -> MemoryConstants:
        """What a trainer adds to memory with each set of policies."""
        return self.constants._replace(
            streams=self._streams(variants),
            gathered=numpy.array([[self._gathered(self.chosen[which])] for which in wanted]),
        )

    def _streams(self, variants: PipelineVariants) -> Any:
        """The only figure that goes with the samples, and with how many pieces of the model a rank has."""
        pipelines, setting = self.space.pipelines(self.ranks), self.parts.setting(self.plan)
        places: list[int] = variants.place.tolist()
        own = [pipelines[place] for place in places]
        held: dict[int, Any] = {one.chunks: held_back(setting, self._samples(), one) for one in own}
        each = [numpy.broadcast_to(held[one.chunks], len(self.counts)) for one in own]
        return numpy.array([row[at] for row, at in zip(each, variants.count.tolist(), strict=True)])

    def _samples(self) -> Any:
        """Of a micro-batch on the ranks that share it, for each count of micro-batches."""
        return numpy.array([self.space.job.batch // count for count in self.counts])

    @functools.cached_property
    def constants(self) -> MemoryConstants:
        """The same with the first of them, for all counts of micro-batches."""
        return self._constants_with(self.plan)

    def _gathered(self, chosen: PolicySet) -> float:
        """The only figure that goes with the policies: an optimizer on the host makes no copies on the device."""
        offloads = chosen.plan.policy(Offload).optimizer
        if offloads not in self.gathered:
            self.gathered[offloads] = self._constants_with(Plan(self.axes, chosen.policies)).gathered
        return self.gathered[offloads]

    def _constants_with(self, plan: Plan) -> MemoryConstants:
        return memory_constants(self.parts.setting(plan), self.mesh, self.space.cluster, self._samples())

    # the pipelines

    def _variants(self) -> PipelineVariants:
        key, known = (self.model.number, self.ranks, self.counts, self.paired), self.parts.variants
        if key not in known:
            known[key] = self._scheduled(self.parts.number(("variants", key)))
        return known[key]

    def _scheduled(self, number: int) -> PipelineVariants:
        pipelines = self.space.pipelines(self.ranks)
        pairs = [
            (place, at)
            for place, pipeline in enumerate(pipelines)
            for at, count in enumerate(self.counts)
            if self.space.schedulable(pipeline, count, self.paired)
        ]
        places = sorted({place for place, _ in pairs})
        partitions = [self.parts.partition(self.model, pipelines[place]) for place in places]
        own = [places.index(place) for place, _ in pairs]
        cuts = [partitions[at].cut for at in own]
        count = numpy.array([at for _, at in pairs], dtype=numpy.int64)
        return PipelineVariants(
            number,
            partitions,
            own=numpy.array(own, dtype=numpy.int64),
            count=count,
            signatures=numpy.array([len(cut.signatures) for cut in cuts]),
            place=numpy.array([place for place, _ in pairs]),
            microbatches=numpy.array(self.counts)[count],
            partition=numpy.array([partitions[at].row for at in own]),
            splits=numpy.array([cut.schedule.splits_backward for cut in cuts]),
        )

    # the parts of its plans

    def _row(self, chosen: PolicySet, variants: PipelineVariants) -> PolicyRow:
        executed = self.parts.executed(chosen)
        how = self._prices(chosen, executed)
        counts: list[int] = numpy.unique(variants.count).tolist()
        wanted = [self.samples[at] for at in counts]
        programs = self.parts.local.programs(self._local(chosen, executed, how.prices), wanted)
        traffic = self._traffic(chosen, executed, how.prices, variants, programs)
        return PolicyRow(
            programs.row,
            [programs.place.get(count, 0) for count in self.samples],
            self._sends(programs, executed, how.prices, variants),
            self._peaks(programs, traffic, chosen, variants),
            traffic.rows,
            how.launch_profile,
            how.overlap,
        )

    def _local(self, chosen: PolicySet, executed: Executed, prices: Prices) -> LocalQuestion:
        samples = tuple(self.samples)
        return LocalQuestion(self.model, self.local_axes, chosen, executed, prices, samples, self.where)

    def _prices(self, chosen: PolicySet, executed: Executed) -> MeshPrices:
        if executed.number not in self.executions:
            plan, trainer, pipelined = Plan(self.axes, chosen.policies), executed.trainer, self.ranks > 1
            form = plan.policy(Precision).format
            prices = Prices(self.named, self.space.cluster, form, trainer, executed.messages)
            profile = self.parts.table.launches(plan, trainer, pipelined)
            self.executions[executed.number] = MeshPrices(prices, profile, overlap_share(plan, trainer, pipelined))
        return self.executions[executed.number]

    def _sends(self, programs: Programs, executed: Executed, prices: Prices, variants: PipelineVariants) -> list[int]:
        """For each pipeline the row of what crosses between its stages."""
        key = (programs.layouts, executed.number, variants.number)
        if key not in self.sends:
            self.sends[key] = [self.parts.sends(programs, own, executed, prices) for own in variants.pipelines]
        return self.sends[key]

    def _peaks(
        self, programs: Programs, traffic: MeshTraffic, chosen: PolicySet, variants: PipelineVariants
    ) -> list[int]:
        """For each pipeline the row of what its micro-batches hold; other meshes may have the same."""
        key, known = (programs.row, variants.number, chosen.held, traffic.gathered), self.parts.mesh_peaks
        if key not in known:
            each = zip(variants.pipelines, traffic.pipelines, strict=True)
            known[key] = [self.parts.peaks(programs, *one, chosen) for one in each]
        return known[key]

    def _traffic(
        self, chosen: PolicySet, executed: Executed, prices: Prices, variants: PipelineVariants, programs: Programs
    ) -> MeshTraffic:
        """The weight traffic with each pipeline."""
        key = (chosen.care, executed.number, variants.number)
        if key not in self.traffics:
            local = programs.parts[0][0]
            state = self._state(chosen, prices, local)
            found = [self.parts.traffic(own, local, executed, state, prices) for own in variants.pipelines]
            gathered = self.parts.number(("gathered", tuple(one.gathered for one in found)))
            self.traffics[key] = MeshTraffic(found, gathered, [one.row for one in found])
        return self.traffics[key]

    def _state(self, chosen: PolicySet, prices: Prices, local: RankProgram) -> StateRow:
        """How weights are kept with a set of policies."""
        if chosen.care not in self.states:
            known = next((one.alike for one in self.states.values()), None)
            self.states[chosen.care] = self.parts.state(self.model, self.mesh, chosen, local, prices, known)
        return self.states[chosen.care]


def _added(chosen: PolicySet) -> tuple[int, int]:
    """What a set of policies adds to the work of layers: the place of its recomputation, and copies to the host."""
    return chosen.plan.policy(Recompute).rule.place, len(chosen.plan.policy(Offload).moved)
