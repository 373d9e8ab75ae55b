"""The outline of a program: its local program, how the model is cut into stages, and the care of its weights.

A program written out has every stage (`lower.lower`); its numbers need each shape of stage only once.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from foretell.model.fold import written_out
from foretell.model.graph import Graph
from foretell.model.layers import by_layers
from foretell.model.resize import skeleton, with_samples
from foretell.plan.plan import Plan
from foretell.plan.policies.batchnorm import BatchNorm
from foretell.plan.policies.imbalance import Imbalance
from foretell.plan.policies.lora import Lora
from foretell.plan.policies.offload import Offload
from foretell.plan.policies.precision import Precision
from foretell.plan.policies.recompute import Recompute
from foretell.plan.setting import Setting
from foretell.plan.storage import STORAGES
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.strategy import MeshAxis
from foretell.plan.trainer import Trainer
from foretell.program.activation_memory import StagePeaks, WeightBuffers
from foretell.program.boundary import Cut, cuts
from foretell.program.cutting import Key, cutting
from foretell.program.layout import Layout, layout
from foretell.program.local import Local
from foretell.program.mesh import mesh, stride
from foretell.program.program import Axis
from foretell.program.spread import Conventions, Spread, spread
from foretell.program.stage_runs import StackedRuns, StageRuns
from foretell.program.upkeep import Upkeep, plain_axes
from foretell.program.weights import Weight
from foretell.units import at_least, ceil_div, product, somewhere, whole_numbers


class Outline:
    """One plan for one model, before it is written out; `block` is that of `Conventions`."""

    def __init__(self, setting: Setting, block: int = 0) -> None:
        self.setting, self.plan, self.trainer = setting, setting.plan, setting.trainer
        self.axes = mesh(self.plan)
        self.graph = as_lowered(self.plan.policy(Lora).trained(setting.graph), self.axes)
        pipeline = self.plan.axis(Pipeline) or Pipeline(ranks=1)
        self.cutting = cutting(skeleton(self.graph), pipeline, self.trainer.pipeline.split)
        self.schedule, self.ranks, self.chunks = self.cutting.schedule, self.cutting.ranks, self.cutting.chunks
        self.local = local_of(self.graph, self.axes, self.plan, self.trainer, block)
        self.upkeep = Upkeep(setting, self.axes)

    @property
    def layout(self) -> Layout:
        return self.local.layout

    @functools.cached_property
    def mesh(self) -> tuple[Axis, ...]:
        return tuple(self._axis(axis) for axis in self.axes)

    def _axis(self, axis: MeshAxis) -> Axis:
        exchange = axis.exchange
        apart = stride(self.axes, (axis.name,))
        return Axis(axis.name, axis.ranks, apart, exchange.waits, exchange.staleness, self.divides(axis.name))

    def divides(self, name: str) -> bool:
        """Whether an axis divides any operator; the pipeline always does."""
        if name == "pp" or name in self.upkeep.plain:
            return True
        return any(any(one.places.values()) for one in self.layout.spreads if one.axis.name == name)

    @functools.cached_property
    def cuts(self) -> tuple[tuple[Cut, ...], ...]:
        """For each part what crosses into it."""
        return cuts(self.layout, self.cutting.row.crossings)

    def own(self, at: int) -> list[Weight]:
        """The weights that a stage has to care for."""
        return self.cutting.weights(self.local, at, self.upkeep, folded=False)

    def holders(self, at: int, own: Sequence[Weight]) -> dict[Key, frozenset[int]]:
        """The pipeline ranks that have each of a stage's weights."""
        return self.cutting.holders(at, own)

    def peaks(self, at: int, gathered: tuple[float, ...] = ()) -> StagePeaks:
        """What a micro-batch holds on a stage, where gradients of weights have their own place."""
        own = self.cutting.shape_runs[self.cutting.stage_shapes[at]]
        return activation_peaks(
            self.local, own, self.plan, WeightBuffers(gathered, self.upkeep.reshards), self.ranks > 1
        )


def activation_peaks(
    local: Local, own: StageRuns | StackedRuns, plan: Plan, weights: WeightBuffers, pipelined: bool
) -> StagePeaks:
    """What a micro-batch holds on a stage of these layers, with what their weights add."""
    recompute = plan.policy(Recompute)
    peaks = local.peaks(own, weights, pipelined)
    if somewhere(own.layers) and somewhere(recompute.segment(own.layers) > 1):
        peaks = _segmented(local, own, recompute, peaks)
    if somewhere(own.layers) and plan.policy(Offload).activations:  # two layers at a time: one at work, one on its way
        waiting = 2 * peaks.kept / at_least(own.layers, 2)
        gone = peaks.kept - waiting
        peaks = StagePeaks(waiting, *(peak - gone for peak in peaks[1:]))
    if not own.inputs:
        return peaks
    given = sum(local.layout.held_bytes(*home) for home in own.inputs)  # samples stay, whatever runs again
    return StagePeaks(*(size + given for size in peaks))


def _segmented(local: Local, own: StageRuns | StackedRuns, recompute: Recompute, peaks: StagePeaks) -> StagePeaks:
    """Only the input of each segment is kept; its layers run again together and keep all for their backward."""
    whole = local.plain.peaks(own, WeightBuffers(), pipelined=True).kept
    ends = local.plain.peaks(own.between, WeightBuffers(), pipelined=True).kept
    inputs = at_least(peaks.kept - ends, 0.0) / own.layers
    each = at_least(whole - ends, 0.0) / own.layers
    size = recompute.segment(own.layers)
    kept = ends + ceil_div(own.layers, size) * inputs
    gone = peaks.kept - kept
    again = (size - 1) * each - gone
    return StagePeaks(kept, peaks.forward_peak - gone, peaks.backward_peak + again, peaks.making_peak + again)


def local_of(graph: Graph, axes: tuple[MeshAxis, ...], plan: Plan, trainer: Trainer, block: int = 0) -> Local:
    """The local program of a plan, as far as the axes that divide layers and the policies decide it.

    Ranks that take samples each for themselves do what one rank does with its share of them.
    """
    alone = product(axis.ranks for axis in plain_axes(axes, plan, graph))
    return local_program(graph, space_axes(axes, plan, graph), plan, trainer, ceil_div(graph.batch, alone), block)


def space_axes(axes: tuple[MeshAxis, ...], plan: Plan, graph: Graph) -> tuple[MeshAxis, ...]:
    """The axes that local programs know of, however weights are stored along them."""
    plain = plain_axes(axes, plan, graph)
    inside = [axis for axis in axes if axis.name != "pp" and axis not in plain]
    return tuple(replace(axis, storage=STORAGES["replicated"]) for axis in inside)


def local_program(
    graph: Graph,
    space: tuple[MeshAxis, ...],
    plan: Plan,
    trainer: Trainer,
    samples: int | tuple[int, ...],
    block: int = 0,
) -> Local:
    """What the ranks of some axes do with so many samples together, or with each of several numbers of them.

    Several at once only where their number decides sizes and nothing else: see `spread_alike`.
    """
    divided = any(axis.splitting.shares_samples for axis in space)
    like = samples if isinstance(samples, int) else samples[0]
    return local(
        with_samples(graph, like) if divided else skeleton(graph),
        samples,
        space,
        _conventions(plan, trainer, block),
        trainer.tensor.vocabulary_multiple * product(axis.ranks for axis in space if axis.splitting.flows),
        plan.policy(Recompute).again,
        plan.policy(Offload).activations,
        plan.policy(Imbalance).factor,
    )


def spread_alike(
    graph: Graph, space: tuple[MeshAxis, ...], plan: Plan, trainer: Trainer, samples: Sequence[int]
) -> list[tuple[int, ...]]:
    """Numbers of samples, those together that axes divide in the same way."""
    if not any(axis.splitting.shares_samples for axis in space):
        return [tuple(samples)] if samples else []
    conventions, found = _conventions(plan, trainer), list[tuple[list[Spread], list[int]]]()
    for count in samples:
        spreads = [spread(with_samples(graph, count), axis, conventions) for axis in space]
        same = next((counts for like, counts in found if like == spreads), None)
        if same is None:
            found.append((spreads, [count]))
        else:
            same.append(count)
    return [tuple(counts) for _, counts in found]


@functools.lru_cache(maxsize=1024)
def local(
    graph: Graph,
    samples: int | tuple[int, ...],
    space: tuple[MeshAxis, ...],
    conventions: Conventions,
    vocabulary_multiple: int,
    again: str,
    waits_on_host: bool,
    imbalance: float,
) -> Local:
    """The local program of a model on some axes; the vocabulary is padded to a multiple, if there is one."""
    model = (graph, samples, space, conventions, vocabulary_multiple)
    if waits_on_host:
        return local(*model, again, False, imbalance).waiting_on_host()
    plain = local(*model, "nothing", False, imbalance) if again != "nothing" else None
    return Local(_layout(*model, imbalance), again, plain)


@functools.lru_cache(maxsize=1024)
def _layout(
    graph: Graph,
    samples: int | tuple[int, ...],
    space: tuple[MeshAxis, ...],
    conventions: Conventions,
    vocabulary_multiple: int,
    imbalance: float,
) -> Layout:
    padding = {"vocab": vocabulary_multiple} if vocabulary_multiple else {}
    sizes = samples if isinstance(samples, int) else whole_numbers(samples)
    return layout(graph, space, conventions, padding, imbalance, sizes)


def _conventions(plan: Plan, trainer: Trainer, block: int = 0) -> Conventions:
    return Conventions(
        each_consumer=trainer.tensor.reduce == "consumer",
        gather_again=trainer.tensor.regather,
        synchronised=plan.policy(BatchNorm).synchronised,
        gathers_logits=trainer.tensor.loss == "gathered",
        scatters_loss=trainer.tensor.loss == "gathered" and trainer.memory.scatters_loss,
        whole_bias=trainer.tensor.row_bias == "whole",
        autocast=plan.policy(Precision).format.autocast,
        compiled=trainer.execution == "compiled",
        block=block,
    )


def as_lowered(graph: Graph, axes: tuple[MeshAxis, ...]) -> Graph:
    """The model as a program refers to it: a block for each layer, or for equal ones.

    Without repetitions where a part of it may begin and end anywhere.
    """
    if any(axis.splitting.only for axis in axes):
        graph = msgspec.structs.replace(graph, blocks=written_out(graph.blocks))
    return with_samples(by_layers(skeleton(graph)), graph.batch)
