"""Whether a trainer can run a plan: the rules of the trainer, each with its numbers and a way out.

These are rules of the software. What a model or a batch allows at all is the strategies' own affair.
Each rule says what is wrong and mends the plan for itself; see `mending` for how a way out comes of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias

import msgspec

from foretell.plan.plan import Plan, axis_text
from foretell.plan.policies.a2a_overlap import A2AOverlap
from foretell.plan.policies.microbatches import Microbatches
from foretell.plan.policies.precision import Precision
from foretell.plan.refusal import Refusal
from foretell.plan.repair import changed, fewer, nearest, removed, replaced, told, with_fields
from foretell.plan.schedule import find
from foretell.plan.stages import Costs, empty_stages, layers_per_stage, long_ends, short_ends
from foretell.plan.strategies.context import Context
from foretell.plan.strategies.data import Data
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.strategies.tensor import Tensor
from foretell.plan.strategy import Strategy
from foretell.plan.syntax import spelled_list
from foretell.plan.trainer import Trainer, allows


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules ask of the model and the cluster. 0: not known, and the rule is not asked."""

    node: int = 0  # ranks of a node
    layers: int = 0
    heads: int = 0  # of queries
    key_heads: int = 0  # of keys and values
    vocabulary: int = 0
    costs: Costs = Costs()


UNKNOWN: Final = Surroundings()

PAIRED: Final = "interleaved"
"""The schedule whose passes run in pairs: with the forwards that 1F1B has ahead ranks would wait for each other."""

Rule: TypeAlias = Callable[[Trainer, Plan, Surroundings], Iterator[Refusal]]


def legal(trainer: Trainer, plan: Plan, around: Surroundings = UNKNOWN) -> Iterator[Refusal]:
    """The rules of the trainer that the plan breaks; the way out is a plan that breaks none of these."""
    found = tuple(broken(trainer, plan, around))
    if found:
        yield from told(found, nearest(plan, lambda other: broken(trainer, other, around)))


def broken(trainer: Trainer, plan: Plan, around: Surroundings) -> Iterator[Refusal]:
    """The same, with the mends of each rule by itself."""
    yield from _breaking(RULES, trainer, plan, around)


def broken_by_axes(trainer: Trainer, plan: Plan, around: Surroundings) -> Iterator[Refusal]:
    """Those of the rules that ask neither for the schedule nor for micro-batches."""
    yield from _breaking((rule for rule in RULES if rule not in PIPELINE_RULES), trainer, plan, around)


def broken_by_pipeline(trainer: Trainer, plan: Plan, around: Surroundings) -> Iterator[Refusal]:
    """And those that ask for nothing but the pipeline and the micro-batches."""
    yield from _breaking(PIPELINE_RULES, trainer, plan, around)


def _breaking(rules: Iterable[Rule], trainer: Trainer, plan: Plan, around: Surroundings) -> Iterator[Refusal]:
    for rule in rules:
        for refusal in rule(trainer, plan, around):
            yield msgspec.structs.replace(refusal, why=f"{trainer.name}: {refusal.why}")


def _strategies(trainer: Trainer, plan: Plan, around: Surroundings) -> Iterator[Refusal]:
    for axis in plan.axes:
        if axis.world > 1 and not allows(trainer.legal.strategies, axis.word):
            can = ", ".join(trainer.legal.strategies)
            why = f"{axis_text(axis)} is not among {can}"
            yield Refusal("trainer's strategies", why, mends=removed(plan, axis))


def _sequence(trainer: Trainer, plan: Plan, around: Surroundings) -> Iterator[Refusal]:
    tensor = plan.axis(Tensor)
    if tensor is None or tensor.ranks == 1:
        return
    rule = trainer.legal.sequence_parallel
    if (rule == "never" and tensor.sequence) or (rule == "always" and not tensor.sequence):
        other = msgspec.structs.replace(tensor, sequence=not tensor.sequence)
        why = f"{axis_text(tensor)}, but sequence parallelism is {'not there' if rule == 'never' else 'always on'}"
        yield Refusal("trainer's sequence parallelism", why, mends=replaced(plan, tensor, other, *fewer(other)))


def _context(trainer: Trainer, plan: Plan, around: Surroundings) -> Iterator[Refusal]:
    context = plan.axis(Context)
    can = trainer.legal.context
    if context is None or context.ranks == 1 or context.exchange in can or not allows(trainer.legal.strategies, "cp"):
        return
    others = [with_fields(context, exchange=word) for word in can]
    why = f"{axis_text(context)}, but it has {_listed(can)}"
    yield Refusal("trainer's context exchange", why, mends=(*replaced(plan, context, *others), *removed(plan, context)))


def _experts(trainer: Trainer, plan: Plan, around: Surroundings) -> Iterator[Refusal]:
    data = plan.axis(Data)
    if data is not None and data.experts > 1 and not trainer.legal.experts:
        mends = replaced(plan, data, with_fields(data, experts=1, expert_tensor=0))
        yield Refusal("trainer's experts", f"{axis_text(data)}, but experts are not divided", mends=mends)


def _storages(trainer: Trainer, plan: Plan, around: Surroundings) -> Iterator[Refusal]:
    data = plan.axis(Data)
    if data is None or data.storage == "replicated":
        return
    can = trainer.legal.storages
    if data.storage not in can:
        why = f"{axis_text(data)}, but it has {_listed(can)}"
        yield Refusal("trainer's storages", why, mends=_stored(plan, data, can))
        return
    stages = _ranks(plan, Pipeline)
    together = trainer.legal.storages_pipeline
    if stages > 1 and data.storage not in together:
        why = f"{data.storage} with {stages} pipeline ranks, but only {_listed(together)} goes with a pipeline"
        yield Refusal("storage with pipeline", why, mends=_stored(plan, data, together))


def _hybrid(trainer: Trainer, plan: Plan, around: Surroundings) -> Iterator[Refusal]:
    data = plan.axis(Data)
    if data is not None and data.shard > 1 and not trainer.legal.hybrid:
        whole = with_fields(data, ranks=data.world, shard=0)
        why = f"{axis_text(data)}, but shares are always among all {data.world} data ranks"
        yield Refusal("trainer's hybrid sharding", why, mends=replaced(plan, data, whole))


def _schedules(trainer: Trainer, plan: Plan, around: Surroundings) -> Iterator[Refusal]:
    pipeline = plan.axis(Pipeline)
    can = trainer.pipeline.schedules
    if pipeline is None or pipeline.ranks == 1 or not allows(trainer.legal.strategies, "pp"):
        return
    if not allows(can, pipeline.schedule):
        usual = "1f1b" if "1f1b" in can else can[0]
        other = with_fields(pipeline, schedule=usual, chunks=0, split=_kept_split(pipeline))
        why = f"{axis_text(pipeline)}, but it runs {_listed(can)}"
        yield Refusal("trainer's schedules", why, mends=(*replaced(plan, pipeline, other), *removed(plan, pipeline)))


def _microbatches(trainer: Trainer, plan: Plan, around: Surroundings) -> Iterator[Refusal]:
    pipeline, count = plan.axis(Pipeline), plan.microbatches
    if pipeline is None or pipeline.ranks == 1:
        return
    ranks = pipeline.ranks
    least = {"any": 1, "ranks - 1": ranks - 1, "ranks": ranks}[trainer.pipeline.least_microbatches]
    if pipeline.schedule == "1f1b" and count < least:
        plural = "" if count == 1 else "es"
        why = f"{count} micro-batch{plural} for {ranks} pipeline ranks; 1f1b needs at least {least}"
        mends = (*_counted(plan, least), *replaced(plan, pipeline, *fewer(pipeline)))
        yield Refusal("enough micro-batches", why, mends=mends)
    if pipeline.schedule == "interleaved":
        yield from _interleaved(trainer, plan, pipeline)


def _interleaved(trainer: Trainer, plan: Plan, pipeline: Pipeline) -> Iterator[Refusal]:
    rule, ranks, count = trainer.pipeline.interleaved, pipeline.ranks, plan.microbatches
    above = math.ceil(count / ranks) * ranks
    below = _counted(plan, above - ranks) if above > ranks else ()
    mends = (*_counted(plan, above), *below, *replaced(plan, pipeline, *fewer(pipeline)))
    if rule == "multiple" and count % ranks:
        why = f"{count} micro-batches are not a multiple of {ranks} pipeline ranks, as interleaved needs"
        yield Refusal("interleaved micro-batches", why, mends=mends)
    rounds = max(1, count // ranks)
    if rule == "rounds" and count % rounds:
        why = f"{count} micro-batches do not divide into {rounds} rounds over {ranks} pipeline ranks"
        yield Refusal("interleaved micro-batches", why, mends=mends)


def _pairs(trainer: Trainer, plan: Plan, around: Surroundings) -> Iterator[Refusal]:
    """Passes of two micro-batches that run together: `+a2a-overlap`."""
    if not plan.policy(A2AOverlap).on:
        return
    pipeline, without = plan.axis(Pipeline), changed(plan, A2AOverlap())
    if not trainer.legal.a2a_overlap:
        why = "+a2a-overlap, but no pass of another micro-batch runs beside rows of experts"
        yield Refusal("trainer's overlap of rows", why, mends=without)
    elif pipeline is not None and pipeline.ranks > 1 and pipeline.schedule != PAIRED:
        why = f"+a2a-overlap with {pipeline.schedule}: {PAIRED} alone pairs passes, others have too few ahead"
        other = with_fields(pipeline, schedule=PAIRED, chunks=2, split=())
        yield Refusal("passes to pair", why, mends=(*replaced(plan, pipeline, other), *without))
    elif plan.microbatches < 2:
        why = "+a2a-overlap with one micro-batch: there is no other one whose pass could run beside it"
        yield Refusal("passes to pair", why, mends=(*_counted(plan, 2), *without))


def _precisions(trainer: Trainer, plan: Plan, around: Surroundings) -> Iterator[Refusal]:
    precision = plan.policy(Precision)
    can = trainer.legal.precisions
    if precision.name and not allows(can, precision.name):
        mends = changed(plan, Precision(name=trainer.defaults.precision))
        yield Refusal("trainer's precisions", f"{precision.name} is not among {', '.join(can)}", mends=mends)


def _node(trainer: Trainer, plan: Plan, around: Surroundings) -> Iterator[Refusal]:
    tensor = plan.axis(Tensor)
    if tensor is not None and trainer.legal.tensor_in_node and 0 < around.node < tensor.ranks:
        why = f"{axis_text(tensor)} over nodes of {around.node} ranks; a tensor axis stays in a node"
        mends = replaced(plan, tensor, *fewer(tensor, lambda ranks: around.node % ranks == 0))
        yield Refusal("tensor inside a node", why, mends=mends)


def _divides(trainer: Trainer, plan: Plan, around: Surroundings) -> Iterator[Refusal]:
    tensor = plan.axis(Tensor)
    if tensor is None or tensor.ranks == 1:
        return
    # One key and value head for all queries is on every rank. Where query heads do not divide, theirs need not be said.
    apart = around.key_heads > 1 and around.heads % tensor.ranks == 0
    for asked, size, what in (
        (trainer.legal.heads_divide, around.heads, "heads"),
        (trainer.legal.heads_divide and apart, around.key_heads, "key and value heads"),
        (trainer.legal.vocabulary_divide, around.vocabulary, "words of the vocabulary"),
    ):
        if asked and size and size % tensor.ranks:
            why = f"{size} {what} are not a multiple of {axis_text(tensor)}"
            mends = replaced(plan, tensor, *_dividing(tensor, size))
            yield Refusal(f"{what.split()[-1]} divide", why, mends=mends)


def _dividing(tensor: Tensor, size: int) -> Iterator[Strategy]:
    return fewer(tensor, lambda ranks: size % ranks == 0)


def _stages(trainer: Trainer, plan: Plan, around: Surroundings) -> Iterator[Refusal]:
    pipeline, layers = plan.axis(Pipeline), around.layers
    if pipeline is None or pipeline.ranks == 1:
        return
    if len(set(pipeline.split)) > 1 and not trainer.legal.uneven_stages:
        why = f"{axis_text(pipeline)}, but its stages are not chosen"
        yield Refusal("equal stages", why, mends=replaced(plan, pipeline, with_fields(pipeline, split=())))
        return
    stages = _stage_count(pipeline, pipeline.ranks)
    if not layers or pipeline.split:
        return
    if trainer.legal.layers_divide and layers % stages:
        mends = (*_uneven(trainer, plan, pipeline, layers), *_shorter(plan, pipeline, lambda n: layers % n == 0))
        yield Refusal("layers divide", f"{layers} layers are not a multiple of {stages} stages", mends=mends)
    elif not trainer.legal.empty_stages and (empty := _empty(trainer, stages, around)):
        counts = spelled_list(layers_per_stage(trainer.pipeline.split, layers, stages, around.costs))
        why = f"{layers} layers on {stages} stages are {counts}; {empty} would have nothing"
        mends = _shorter(plan, pipeline, lambda count: not _empty(trainer, count, around))
        yield Refusal("no empty stage", why, mends=mends)


def _uneven(trainer: Trainer, plan: Plan, pipeline: Pipeline, layers: int) -> Iterator[Plan]:
    """The plan on as many stages, where the first and the last have fewer layers than those between, or one more."""
    stages = _stage_count(pipeline, pipeline.ranks)
    if trainer.legal.uneven_stages and stages > 2:
        for split in (*short_ends(layers, stages), *long_ends(layers, stages)):
            yield from replaced(plan, pipeline, with_fields(pipeline, split=split))


def _empty(trainer: Trainer, stages: int, around: Surroundings) -> int:
    return empty_stages(trainer.pipeline.split, around.layers, stages, around.costs)


def _stage_count(pipeline: Pipeline, ranks: int) -> int:
    """Different stages on so many ranks."""
    schedule = find(pipeline.schedule)
    return ranks * max(pipeline.chunks, schedule.least_chunks) // schedule.copies


def _shorter(plan: Plan, pipeline: Pipeline, passes: Callable[[int], bool]) -> tuple[Plan, ...]:
    """The plan with fewer pipeline ranks, so that the number of stages passes; with one stage a rank; without."""
    plainer = with_fields(pipeline, schedule="1f1b", chunks=0)
    shorter = fewer(pipeline, lambda ranks: ranks > 1 and passes(_stage_count(pipeline, ranks)))
    plain = fewer(plainer, lambda ranks: ranks > 1 and passes(ranks))
    return (*replaced(plan, pipeline, *shorter, *plain), *removed(plan, pipeline))


RULES: Final[tuple[Rule, ...]] = (
    _strategies,
    _sequence,
    _context,
    _experts,
    _storages,
    _hybrid,
    _schedules,
    _stages,
    _node,
    _divides,
    _microbatches,
    _pairs,
    _precisions,
)


PIPELINE_RULES: Final[tuple[Rule, ...]] = (_schedules, _stages, _microbatches, _pairs)


def _ranks(plan: Plan, kind: type[Strategy]) -> int:
    axis = plan.axis(kind)
    return 1 if axis is None else axis.ranks


def _listed(words: tuple[Any, ...]) -> str:
    return ", ".join(words) if words else "none"


def _kept_split(pipeline: Pipeline) -> tuple[int, ...]:
    """The layers of each stage, where another schedule has as many stages."""
    return pipeline.split if len(pipeline.split) == pipeline.ranks else ()


def _counted(plan: Plan, microbatches: int) -> tuple[Plan, ...]:
    return changed(plan, Microbatches(count=microbatches))


def _stored(plan: Plan, data: Data, can: tuple[str, ...]) -> tuple[Plan, ...]:
    """The most that a trainer puts in shares, up to what was asked; else the least that it can; else nothing."""
    below = [word for word in can if word <= data.storage]
    storage = max(below, default=min(can, default="replicated"))
    whole = with_fields(data, storage="replicated", ranks=data.world, shard=0)
    return replaced(plan, data, *([] if storage == "replicated" else [with_fields(data, storage=storage)]), whole)
