"""Parts that the plans of a space have in common, each priced once and written down in the engine's tables."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy

from foretell.cost.host import as_executed
from foretell.cost.price import stage_peaks, stage_sends
from foretell.cost.prices import Prices
from foretell.cost.weight_traffic import WeightTrafficCost, weight_traffic_cost
from foretell.model.graph import Graph
from foretell.model.operator import PARTS, OperatorPart
from foretell.model.resize import skeleton, with_samples
from foretell.oracle.local_programs import (
    EXACT,
    Executed,
    LocalPrograms,
    LoweredModel,
    PolicySet,
    Programs,
    RoughPrograms,
)
from foretell.oracle.lower_bounds import StageCounts, stage_counts
from foretell.oracle.space import Space
from foretell.plan.axis_names import AxisName
from foretell.plan.plan import Plan
from foretell.plan.policies.a2a_overlap import A2AOverlap
from foretell.plan.policies.batchnorm import BatchNorm
from foretell.plan.policies.bucket import Bucket
from foretell.plan.policies.compression import Compression
from foretell.plan.policies.execution import Execution
from foretell.plan.policies.imbalance import Imbalance
from foretell.plan.policies.offload import Offload
from foretell.plan.policies.overlap import Overlap
from foretell.plan.policies.precision import Precision
from foretell.plan.policies.recompute import Recompute
from foretell.plan.policy import Policy
from foretell.plan.recomputation import Recomputation
from foretell.plan.repair import divisors
from foretell.plan.setting import Setting
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.strategy import MeshAxis
from foretell.plan.trained import TrainedWeights, as_trained_by, trained_weights
from foretell.program.activation_memory import StagePeaks, WeightBuffers
from foretell.program.lower import as_lowered, kept_by
from foretell.program.partition import PipelinePartition, pipeline_partition
from foretell.program.rank_program import BlockKind, RankProgram
from foretell.program.stage_activations import activation_peaks
from foretell.program.stage_runs import StackedRuns, StageRuns, Uneven
from foretell.program.weight_state import WeightStatePlan
from foretell.timeline import unroll
from foretell.timeline.plan_table import PlanTable

MANY = 60_000
"""Passes of all steps together for which loading the compiled functions that order them pays."""


class PartitionRow(NamedTuple):
    """How a model is cut for a pipeline, and the row of that."""

    cut: PipelinePartition
    row: int
    signatures: tuple[int, ...]  # a number for each, the same where weights are
    layers: int  # a number for those of all shapes: cuts into as many stages have them in common
    counts: StageCounts  # of layers on each rank


class StateRow(NamedTuple):
    """How a mesh keeps weights: where groups of ranks lie alike in the same way, whatever their axes are called."""

    weight_state: WeightStatePlan
    alike: Mapping[BlockKind, int]  # the same for kinds of layers whose weights are cared for in the same way
    manner: int


class StageTraffic(NamedTuple):
    """The care of the weights of a cut, and what it gathers."""

    row: int
    figures: tuple[WeightTrafficCost, ...]
    reshards: bool
    gathered: int  # a number for the bytes of that


class Parts:
    """The parts of all plans of a space, found when they are asked for."""

    def __init__(self, space: Space) -> None:
        self.space, self.trainer = space, space.trainer
        self.table = PlanTable(space.cluster)
        self.samples = tuple(divisors(space.job.batch))  # that a micro-batch may have on the ranks that split none
        self._executed: dict[Hashable, Executed] = {}
        self._lowered: dict[tuple[bool, TrainedWeights, Recomputation | None, str], LoweredModel] = {}
        self._partitions: dict[tuple[int, Pipeline], PartitionRow] = {}
        self._sends: dict[Hashable, int] = {}
        self._peaks: dict[tuple[int, ...], int] = {}
        self._repetitions: set[int] = set()  # of the layers of all stages so far, where they are many
        self._stacks: dict[tuple[RankProgram, int], dict[Hashable, LayerStack]] = {}
        self._cares: dict[Hashable, WeightTrafficCost] = {}
        self._traffic: dict[Hashable, StageTraffic] = {}
        self._numbers: dict[Hashable, int] = {}
        self.local = LocalPrograms(self.table, self.samples, self.number)
        self._unrolled: dict[Hashable, dict[str, int]] = {}
        self.variants: dict[Hashable, Any] = {}  # of pipelines, by mesh
        self.mesh_peaks: dict[Hashable, list[int]] = {}
        self.mesh_orders: dict[int, dict[str, Any]] = {}
        self._passes = 0  # of the steps that these are

    def chosen(self, policies: tuple[Policy, ...]) -> PolicySet:
        plan = Plan(policies=policies)
        offload, precision, recompute = plan.policy(Offload), plan.policy(Precision), plan.policy(Recompute)
        local = (recompute.rule.of_one_layer(), offload.activations, plan.policy(Imbalance), plan.policy(BatchNorm))
        care = (offload.optimizer, offload.weights, precision, plan.policy(Bucket), plan.policy(Compression))
        execution = (plan.policy(Execution), plan.policy(Overlap), plan.policy(A2AOverlap))
        numbers = map(self.number, (local, (recompute, offload.activations), care, execution))
        return PolicySet(policies, plan, *numbers)

    def number(self, value: Hashable) -> int:
        """A number for a value: equal ones have the same."""
        return self._numbers.setdefault(value, len(self._numbers))

    def setting(self, plan: Plan) -> Setting:
        return self.space.whole(plan)

    def executed(self, chosen: PolicySet) -> Executed:
        """The trainer as a set of policies has it."""
        if chosen.execution not in self._executed:
            trainer = as_executed(self.setting(chosen.plan))
            self._executed[chosen.execution] = Executed(len(self._executed), trainer, {})
        return self._executed[chosen.execution]

    # the model and its stages

    def lowered(self, axes: tuple[MeshAxis, ...], plan: Plan) -> LoweredModel:
        """The model, without repetitions where an axis divides a part of it."""
        spares = plan.policy(Recompute).spares
        loss = kept_by(plan, self.trainer, axes).loss
        partly = any(axis.splitting.only for axis in axes), trained_weights(plan), spares, loss
        if partly not in self._lowered:
            graph = skeleton(as_lowered(as_trained_by(plan, self.space.graph), axes, plan, self.trainer))
            kinds = pipeline_partition(graph, Pipeline(ranks=1), self.trainer.pipeline.split).kinds
            if spares:  # of each kind, since stages of other lengths leave out other layers
                kinds += tuple(kind._replace(spared=True) for kind in kinds)
            self._lowered[partly] = LoweredModel(len(self._lowered), graph, kinds, EXACT // _largest(graph), spares)
        return self._lowered[partly]

    def partition(self, model: LoweredModel, pipeline: Pipeline) -> PartitionRow:
        """The model cut for a pipeline."""
        key = (model.number, pipeline)
        if key not in self._partitions:
            cut = pipeline_partition(model.graph, pipeline, self.trainer.pipeline.split, model.spares)
            weights = ((shape._replace(received=(), sent=()), cut.schedule.flushes) for shape in cut.signatures)
            row = self.table.stages(cut, model.kinds)
            self._repetitions.update(own.times for own in cut.signature_runs if own.stackable)
            layers = self.number((model.number, cut.ranks > 1, tuple(own.runs for own in cut.signature_runs)))
            self._partitions[key] = PartitionRow(
                cut,
                row,
                tuple(self.number((model.number, *one)) for one in weights),
                layers,
                stage_counts(cut, model.kinds),
            )
        return self._partitions[key]

    def unrolled(self, cut: PipelinePartition, count: int, paired: bool) -> dict[str, int]:
        """The rows of the orders that are played, and the rounds still to come."""
        how = (cut.schedule.in_pairs() if paired else cut.schedule, cut.ranks, count, cut.chunks)
        if how not in self._unrolled:
            self._passes += cut.ranks * count * cut.chunks
            if self._passes > MANY:
                unroll.load()
            self._unrolled[how] = self.table.unrolled(unroll.unrolled_schedule(*how))
        return self._unrolled[how]

    # what a micro-batch does

    def sends(self, programs: Programs, variant: PartitionRow, executed: Executed, prices: Prices) -> int:
        """The row of what crosses between stages, of the first number of samples; the others' follow."""
        key = (programs.layouts, variant.row, prices.strides_along, executed.number)
        if key not in self._sends:
            self._sends[key] = len(self.table.columns["send_forward"])
            for local, size in programs.parts:
                self.table.sends(stage_sends(variant.cut, local, prices), size)
        return self._sends[key]

    def peaks(self, programs: Programs, variant: PartitionRow, traffic: StageTraffic, chosen: PolicySet) -> int:
        """The row of what is held, of the first number of samples; the others' follow."""
        key = (programs.row, variant.layers, chosen.held, traffic.gathered)
        if key not in self._peaks:
            made, found = self.trainer.memory.new_gradients, list[tuple[tuple[StagePeaks, ...], int]]()
            for local, size in programs.parts:
                how = _Activations(local, chosen.held, chosen.plan, variant.cut.ranks > 1)
                held = functools.partial(self._held, how)
                found.append((stage_peaks(variant.cut, traffic.figures, traffic.reshards, made, held), size))
            self._peaks[key] = self.table.peaks(*found)
        return self._peaks[key]

    def activations(self, programs: RoughPrograms, variant: PartitionRow, chosen: PolicySet) -> tuple[Any, Any]:
        """What each stage signature keeps of a micro-batch, and holds at most in its forward pass, without what weights
        add: rows of a figure for each number of samples."""
        kept, peaks = list[Any](), list[Any]()
        for local, several in programs.parts:
            how, shape = _Activations(local, chosen.held, chosen.plan, variant.cut.ranks > 1), max(1, several)
            each = [self._held(how, own, WeightBuffers()) for own in variant.cut.signature_runs]
            kept.append(numpy.stack([numpy.broadcast_to(one.kept, shape) for one in each]))
            peaks.append(numpy.stack([numpy.broadcast_to(one.forward_peak, shape) for one in each]))
        return numpy.concatenate(kept, axis=1), numpy.concatenate(peaks, axis=1)

    def _held(self, how: _Activations, own: StageRuns, weights: WeightBuffers) -> StagePeaks:
        """What a stage holds; of stages that differ in how often a layer repeats, all are found at once."""
        one = functools.partial(activation_peaks, how.local, plan=how.plan, pipelined=how.pipelined)
        if weights.gathered or weights.gradient or not own.stackable:
            return one(own, weights=weights)
        known = self._stacks.setdefault((how.local, how.held), {})
        key = (own.alike, how.pipelined)
        if key not in known or own.times not in known[key].rows:
            known[key] = _stacked(one, own, sorted(self._repetitions))
        rows, found = known[key]
        if found is None:
            return one(own, weights=weights)
        row, several = rows[own.times], not isinstance(how.local.layout.samples, int)
        return StagePeaks(*(size[row] if several else float(size[row, 0]) for size in found))

    # weights

    def state(
        self,
        model: LoweredModel,
        axes: tuple[MeshAxis, ...],
        chosen: PolicySet,
        local: RankProgram,
        prices: Prices,
        alike: Mapping[BlockKind, int] | None,
    ) -> StateRow:
        """How the weights of a mesh are kept; `alike` is what another keeping of it has; None: this is the first."""
        weight_state = WeightStatePlan(self.setting(chosen.plan), axes)
        if alike is None:
            stride = {axis.name: axis.stride for axis in prices.axes.values()}
            shared = functools.cache(functools.partial(weight_state.like, stride=stride, named=prices.led))
            like = {kind: self._like(weight_state, local, kind, shared) for kind in model.kinds}
            alike = {kind: self.number(found) for kind, found in like.items()}
        manner = (weight_state.manner, chosen.care, prices.led, prices.splits)
        return StateRow(weight_state, alike, self.number(manner))

    @staticmethod
    def _like(
        weight_state: WeightStatePlan, local: RankProgram, kind: BlockKind, shared: Callable[..., Hashable]
    ) -> Hashable:
        """All that the care of a layer's weights depends on besides the trainer."""
        return tuple(
            (
                (weight.rows, weight.columns, weight.trainable, weight.width),
                shared(*weight_state.along(weight, local.sampled)),
            )
            for weight in local.weights(kind)
        )

    def traffic(
        self, variant: PartitionRow, local: RankProgram, executed: Executed, state: StateRow, prices: Prices
    ) -> StageTraffic:
        """The care of a cut's weights."""
        cut, weight_state = variant.cut, state.weight_state
        figures: list[WeightTrafficCost] = []
        for shape, number in zip(cut.signatures, variant.signatures, strict=True):
            kinds = tuple(state.alike[kind] for kind, *_ in shape.layers)
            tied = prices.axes.get(AxisName.PP) if shape.tied else None
            key = (number, kinds, tied, state.manner, executed.number)
            if key not in self._cares:
                self._cares[key] = weight_traffic_cost(cut, shape, local, weight_state, prices)
            figures.append(self._cares[key])
        known = (weight_state.reshards, *map(id, figures))  # which are kept, so that no others get these
        if known not in self._traffic:
            self._traffic[known] = self._all_traffic(figures, weight_state.reshards)
        return self._traffic[known]

    def _all_traffic(self, figures: Sequence[WeightTrafficCost], reshards: bool) -> StageTraffic:
        made = [(one.resting.gradients, one.resting.trained) for one in figures if self.trainer.memory.new_gradients]
        gathered = (reshards, tuple((one.gathered, one.root_bytes) for one in figures), tuple(made))
        return StageTraffic(self.table.traffic(figures), tuple(figures), reshards, self.number(gathered))


class _Activations(NamedTuple):
    """How micro-batches are held: by which local program, and what is kept of them."""

    local: RankProgram
    held: int
    plan: Plan
    pipelined: bool


class LayerStack(NamedTuple):
    """What stages hold that differ in how often a layer repeats."""

    rows: dict[int, int]  # by the number of repetitions
    peaks: StagePeaks | None  # a row for each; None: they have to be asked one by one


def _stacked(one: Callable[..., StagePeaks], own: StageRuns, times: Sequence[int]) -> LayerStack:
    rows = {count: row for row, count in enumerate(times)}
    try:
        found = one(StackedRuns(own, times), weights=WeightBuffers())
    except Uneven:
        return LayerStack(rows, None)
    return LayerStack(rows, StagePeaks(*numpy.broadcast_arrays(*found)))


def _largest(graph: Graph) -> int:
    """The largest figure of any operator for one sample."""
    one = with_samples(graph, 1)
    costs = (node.cost(part, one.widths(block, node)) for block, node in one.nodes() for part in PARTS)
    return max(1, *(getattr(cost, name) for cost in costs for name in OperatorPart.__dataclass_fields__))
