"""From a plan to a program: shard the model over the axes, partition it into stages."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import msgspec

from foretell.caches import forgettable, make_room
from foretell.model.fold import written_out
from foretell.model.graph import Graph
from foretell.model.layers import by_layers
from foretell.model.resize import skeleton, with_samples
from foretell.plan.axis_names import AxisName
from foretell.plan.kept import Kept
from foretell.plan.plan import Plan
from foretell.plan.policies.a2a_overlap import A2AOverlap
from foretell.plan.policies.batchnorm import BatchNorm
from foretell.plan.policies.execution import Execution
from foretell.plan.policies.imbalance import Imbalance
from foretell.plan.policies.loss import Loss
from foretell.plan.policies.offload import Offload
from foretell.plan.policies.partitioned import sharers
from foretell.plan.policies.precision import Precision
from foretell.plan.policies.recompute import Recompute
from foretell.plan.recomputation import Recomputation
from foretell.plan.setting import Setting
from foretell.plan.storage import STORAGES
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.strategy import MeshAxis
from foretell.plan.trained import as_trained_by
from foretell.plan.trainer import Trainer
from foretell.program.casts import by_operators
from foretell.program.kept import as_kept
from foretell.program.mesh import mesh
from foretell.program.partition import PipelinePartition, pipeline_partition
from foretell.program.program import Program
from foretell.program.rank_program import RankProgram
from foretell.program.sharding.conventions import Conventions
from foretell.program.sharding.layout import Layout, layout
from foretell.program.sharding.propagate import Sharding, propagate
from foretell.program.weight_state import WeightStatePlan, plain_axes
from foretell.units import WIDTH, ceil_div, product, whole_numbers


def lower(setting: Setting, block: int = 0) -> Program:
    """The program of a plan that fits (see `legality.refusals`); `block` is that of `Conventions`."""
    plan, trainer, axes = setting.plan, setting.trainer, mesh(setting.plan)
    graph = as_lowered(as_trained_by(plan, setting.graph), axes, plan, trainer)
    pipeline = plan.axis(Pipeline) or Pipeline(ranks=1)
    return Program(
        setting,
        axes,
        graph,
        partition_of(graph, pipeline, plan, trainer),
        local_of(graph, axes, plan, trainer, block),
        WeightStatePlan(setting, axes),
    )


def partition_of(graph: Graph, pipeline: Pipeline, plan: Plan, trainer: Trainer) -> PipelinePartition:
    """The stages of a plan."""
    spares, paired = plan.policy(Recompute).spares, plan.policy(A2AOverlap).on
    return pipeline_partition(skeleton(graph), pipeline, trainer.pipeline.split, spares, paired)


def local_of(graph: Graph, axes: tuple[MeshAxis, ...], plan: Plan, trainer: Trainer, block: int = 0) -> RankProgram:
    """The local program of a plan, as far as the axes that divide layers and the policies decide it.

    Ranks that take samples each for themselves do what one rank does with its share of them.
    """
    alone = product(axis.ranks for axis in plain_axes(axes, plan, graph))
    return local_program(graph, space_axes(axes, plan, graph), plan, trainer, ceil_div(graph.batch, alone), block)


def space_axes(axes: tuple[MeshAxis, ...], plan: Plan, graph: Graph) -> tuple[MeshAxis, ...]:
    """The axes that local programs know of, however weights are stored along them."""
    plain = plain_axes(axes, plan, graph)
    inside = [axis for axis in axes if axis.name != AxisName.PP and axis not in plain]
    return tuple(replace(axis, storage=STORAGES["replicated"]) for axis in inside)


def local_program(
    graph: Graph,
    space: tuple[MeshAxis, ...],
    plan: Plan,
    trainer: Trainer,
    samples: int | tuple[int, ...],
    block: int = 0,
) -> RankProgram:
    """What the ranks of some axes do with so many samples together, or with each of several numbers of them.

    Several at once only where their number decides sizes and nothing else: see `spread_alike`.
    """
    divided = any(axis.splitting.shares_samples for axis in space)
    like = samples if isinstance(samples, int) else samples[0]
    return local(
        with_samples(graph, like) if divided else skeleton(graph),
        samples,
        space,
        _conventions(plan, trainer, space, block),
        trainer.tensor.vocabulary_multiple * product(axis.ranks for axis in space if axis.splitting.flows),
        plan.policy(Recompute).rule.of_one_layer(),
        BetweenPasses(plan.policy(Offload).activations, sharers(plan, space)),
        plan.policy(Imbalance).factor,
    )


def spread_alike(
    graph: Graph, space: tuple[MeshAxis, ...], plan: Plan, trainer: Trainer, samples: Sequence[int]
) -> list[tuple[int, ...]]:
    """Numbers of samples, those together that axes divide in the same way."""
    asking = [axis for axis in space if axis.splitting.asks_samples]
    if not any(axis.splitting.shares_samples for axis in asking):
        return [tuple(samples)] if samples else []
    conventions, found = _conventions(plan, trainer, space), list[tuple[list[Sharding], list[int]]]()
    known: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for count in samples:
        # rules ask of sizes whether ranks divide them, and whether there is one for each: of products with the samples
        # these two decide it
        key = tuple((math.gcd(count, axis.ranks), min(count, axis.ranks)) for axis in asking)
        if key not in known:
            spreads = [propagate(with_samples(graph, count), axis, conventions) for axis in asking]
            same = next((counts for like, counts in found if like == spreads), None)
            if same is None:
                found.append((spreads, same := []))
            known[key] = same
        known[key].append(count)
    return [tuple(counts) for _, counts in found]


class BetweenPasses(NamedTuple):
    """Where activations are between the passes: on the host or not, inputs of layers in shares of ranks or whole."""

    on_host: bool = False
    sharers: int = 1


HERE: Final = BetweenPasses()


@forgettable
@functools.lru_cache(maxsize=1024)
def local(
    graph: Graph,
    samples: int | tuple[int, ...],
    space: tuple[MeshAxis, ...],
    conventions: Conventions,
    vocabulary_multiple: int,
    rule: Recomputation,
    between: BetweenPasses,
    imbalance: float,
) -> RankProgram:
    """The local program of a model on some axes; the vocabulary is padded to a multiple, if there is one."""
    make_room()
    model = (graph, samples, space, conventions, vocabulary_multiple)
    if between.on_host:
        return local(*model, rule, between._replace(on_host=False), imbalance).waiting_on_host()
    if between.sharers > 1:
        return local(*model, rule, HERE, imbalance).dividing_inputs(between.sharers)
    nothing = Recompute().rule
    plain = local(*model, nothing, HERE, imbalance) if rule != nothing else None
    return RankProgram(_layout(*model, imbalance), rule, plain)


@forgettable
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


def _divides_loss(trainer: Trainer, space: tuple[MeshAxis, ...]) -> bool:
    return trainer.tensor.loss == "shares" and any(axis.splitting.flows for axis in space)


def kept_by(plan: Plan, trainer: Trainer, space: tuple[MeshAxis, ...]) -> Kept:
    """What kernels keep, as the plan has them started."""
    kept = trainer.kept
    if plan.policy(Execution).of_kernels(trainer.execution) == "compiled":
        # one kernel by whoever wrote norms; an activation beside a product is made again from what it read
        kept = msgspec.structs.replace(kept, norms="read", gated="inputs")
        if kept.compiled_loss == "read" or (kept.compiled_loss == "whole read" and not _divides_loss(trainer, space)):
            kept = msgspec.structs.replace(kept, loss="read")
    form = plan.policy(Loss).form
    return msgspec.structs.replace(kept, loss=form) if form else kept


def _loss_copies(plan: Plan, trainer: Trainer, space: tuple[MeshAxis, ...]) -> int:
    """Of logits in shares where an axis divides them, else of whole ones."""
    if kept_by(plan, trainer, space).loss in ("read", "chunks", "chunks twice"):
        return 0
    return trainer.memory.shared_loss_copies if _divides_loss(trainer, space) else int(trainer.memory.scatters_loss)


def _conventions(plan: Plan, trainer: Trainer, space: tuple[MeshAxis, ...], block: int = 0) -> Conventions:
    form = plan.policy(Precision).format
    few = form.operand if form.operand < WIDTH[form.activation] else 0.0
    return Conventions(
        each_consumer=trainer.tensor.reduce == "consumer",
        gather_again=trainer.tensor.regather,
        late_sums=trainer.splits.sums == "gathered",
        synchronised=plan.policy(BatchNorm).synchronised,
        gathers_logits=trainer.tensor.loss == "gathered",
        loss_copies=_loss_copies(plan, trainer, space),
        whole_bias=trainer.tensor.row_bias == "whole",
        autocast=form.autocast,
        casts=form.autocast and by_operators(trainer),
        compiled=trainer.execution == "compiled",
        in_place=trainer.kept.loss in ("softmax", "logits", "chunks", "chunks twice") or bool(plan.policy(Loss).form),
        low=few if trainer.kept.low != "read" else 0.0,
        block=block,
        gates=trainer.kept.low == "gates",
        attended=trainer.kept.attended,
        sent=few if trainer.experts.sent == "cast" else 0.0,
        gathered=few if trainer.tensor.gathered == "cast" else 0.0,
        dispatch=trainer.experts.dispatch,
        rotation=trainer.rotation,
        execution=plan.policy(Execution).of_kernels(trainer.execution),
    )


def as_lowered(graph: Graph, axes: tuple[MeshAxis, ...], plan: Plan, trainer: Trainer) -> Graph:
    """The model as a program refers to it: a block for each layer, or for equal ones, with what kernels keep.

    Without repetitions where a part of it may begin and end anywhere.
    """
    if any(axis.splitting.only for axis in axes):
        graph = msgspec.structs.replace(graph, blocks=written_out(graph.blocks))
    return with_samples(as_kept(by_layers(skeleton(graph)), kept_by(plan, trainer, axes)), graph.batch)
