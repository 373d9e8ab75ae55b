"""Whether a trainer can run a plan: the rules of the trainer, each with its numbers and a way out.

These are rules of the software. What a model or a batch allows at all is the strategies' own affair.
Each rule says what is wrong and mends the plan; the way out of every refusal is the plan that passes
all rules after mending, so it can be typed in as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from foretell.plan.plan import Plan, axis_text
from foretell.plan.policies.microbatches import Microbatches
from foretell.plan.policies.precision import Precision
from foretell.plan.refusal import Refusal
from foretell.plan.schedule import find
from foretell.plan.stages import Costs, empty_stages, layers_per_stage
from foretell.plan.strategies.context import Context
from foretell.plan.strategies.data import Data
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.strategies.tensor import Tensor
from foretell.plan.strategy import Strategy
from foretell.plan.trainer import Trainer, allows


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules ask of the model and the cluster. 0: not known, and the rule is not asked."""

    node: int = 0  # ranks of a node
    layers: int = 0
    heads: int = 0
    vocabulary: int = 0
    costs: Costs = Costs()


UNKNOWN: Final = Surroundings()


class Broken(NamedTuple):
    """A rule that a plan breaks, and a plan that does not break it."""

    rule: str
    why: str
    mended: Plan


Rule: TypeAlias = Callable[[Trainer, Plan, Surroundings], Iterator[Broken]]


def legal(trainer: Trainer, plan: Plan, around: Surroundings = UNKNOWN) -> Iterator[Refusal]:
    """The rules of the trainer that the plan breaks."""
    broken = tuple(_broken(trainer, plan, around))
    if broken:
        way_out = _way_out(trainer, plan, around)
        for rule, why, _ in broken:
            yield Refusal(rule, f"{trainer.name}: {why}", way_out)


def _broken(trainer: Trainer, plan: Plan, around: Surroundings) -> Iterator[Broken]:
    for rule in RULES:
        yield from rule(trainer, plan, around)


def _way_out(trainer: Trainer, plan: Plan, around: Surroundings) -> str:
    """The nearest plan that passes: mended rule by rule until none is broken."""
    for _ in range(4 * len(RULES)):
        broken = next(_broken(trainer, plan, around), None)
        if broken is None:
            return f"--plan '{plan}'"
        if broken.mended == plan:
            break
        plan = broken.mended
    return "--trainer pytorch, which has fewer rules"


def _strategies(trainer: Trainer, plan: Plan, around: Surroundings) -> Iterator[Broken]:
    for axis in plan.axes:
        if axis.world > 1 and not allows(trainer.legal.strategies, axis.word):
            can = ", ".join(trainer.legal.strategies)
            yield Broken("trainer's strategies", f"{axis_text(axis)} is not among {can}", _as_data(plan, axis))


def _sequence(trainer: Trainer, plan: Plan, around: Surroundings) -> Iterator[Broken]:
    tensor = plan.axis(Tensor)
    if tensor is None or tensor.ranks == 1:
        return
    rule = trainer.legal.sequence_parallel
    if (rule == "never" and tensor.sequence) or (rule == "always" and not tensor.sequence):
        other = msgspec.structs.replace(tensor, sequence=not tensor.sequence)
        why = f"{axis_text(tensor)}, but sequence parallelism is {'not there' if rule == 'never' else 'always on'}"
        yield Broken("trainer's sequence parallelism", why, _with(plan, tensor, other))


def _context(trainer: Trainer, plan: Plan, around: Surroundings) -> Iterator[Broken]:
    context = plan.axis(Context)
    can = trainer.legal.context
    if context is None or context.ranks == 1 or context.exchange in can or not allows(trainer.legal.strategies, "cp"):
        return
    mended = _with(plan, context, msgspec.structs.replace(context, exchange=can[0])) if can else _as_data(plan, context)
    yield Broken("trainer's context exchange", f"{axis_text(context)}, but it has {_listed(can)}", mended)


def _experts(trainer: Trainer, plan: Plan, around: Surroundings) -> Iterator[Broken]:
    data = plan.axis(Data)
    if data is not None and data.experts > 1 and not trainer.legal.experts:
        mended = _with(plan, data, msgspec.structs.replace(data, experts=1, expert_tensor=0))
        yield Broken("trainer's experts", f"{axis_text(data)}, but experts are not divided", mended)


def _storages(trainer: Trainer, plan: Plan, around: Surroundings) -> Iterator[Broken]:
    data = plan.axis(Data)
    if data is None or data.storage == "replicated":
        return
    can = trainer.legal.storages
    if data.storage not in can:
        yield Broken("trainer's storages", f"{axis_text(data)}, but it has {_listed(can)}", _stored(plan, data, can))
        return
    stages = _ranks(plan, Pipeline)
    together = trainer.legal.storages_pipeline
    if stages > 1 and data.storage not in together:
        why = f"{data.storage} with {stages} pipeline ranks, but only {_listed(together)} goes with a pipeline"
        yield Broken("storage with pipeline", why, _stored(plan, data, together))


def _hybrid(trainer: Trainer, plan: Plan, around: Surroundings) -> Iterator[Broken]:
    data = plan.axis(Data)
    if data is not None and data.shard > 1 and not trainer.legal.hybrid:
        whole = msgspec.structs.replace(data, ranks=data.world, shard=0)
        why = f"{axis_text(data)}, but shares are always among all {data.world} data ranks"
        yield Broken("trainer's hybrid sharding", why, _with(plan, data, whole))


def _schedules(trainer: Trainer, plan: Plan, around: Surroundings) -> Iterator[Broken]:
    pipeline = plan.axis(Pipeline)
    can = trainer.pipeline.schedules
    if pipeline is None or pipeline.ranks == 1 or not allows(trainer.legal.strategies, "pp"):
        return
    if not allows(can, pipeline.schedule):
        other = msgspec.structs.replace(pipeline, schedule="1f1b" if "1f1b" in can else can[0], chunks=0)
        why = f"{axis_text(pipeline)}, but it runs {_listed(can)}"
        yield Broken("trainer's schedules", why, _with(plan, pipeline, other))


def _microbatches(trainer: Trainer, plan: Plan, around: Surroundings) -> Iterator[Broken]:
    pipeline, count = plan.axis(Pipeline), plan.microbatches
    if pipeline is None or pipeline.ranks == 1:
        return
    ranks = pipeline.ranks
    least = {"any": 1, "ranks - 1": ranks - 1, "ranks": ranks}[trainer.pipeline.least_microbatches]
    if pipeline.schedule == "1f1b" and count < least:
        why = f"{count} micro-batches for {ranks} pipeline ranks; 1f1b needs at least {least}"
        yield Broken("enough micro-batches", why, _counted(plan, least))
    if pipeline.schedule == "interleaved":
        yield from _interleaved(trainer, plan, ranks, count)


def _interleaved(trainer: Trainer, plan: Plan, ranks: int, count: int) -> Iterator[Broken]:
    rule = trainer.pipeline.interleaved
    above = math.ceil(count / ranks) * ranks
    if rule == "multiple" and count % ranks:
        why = f"{count} micro-batches are not a multiple of {ranks} pipeline ranks, as interleaved needs"
        yield Broken("interleaved micro-batches", why, _counted(plan, above))
    rounds = max(1, count // ranks)
    if rule == "rounds" and count % rounds:
        why = f"{count} micro-batches do not divide into {rounds} rounds over {ranks} pipeline ranks"
        yield Broken("interleaved micro-batches", why, _counted(plan, above))


def _precisions(trainer: Trainer, plan: Plan, around: Surroundings) -> Iterator[Broken]:
    precision = plan.policy(Precision)
    can = trainer.legal.precisions
    if not allows(can, precision.name):
        mended = _with_policy(plan, Precision(name=trainer.defaults.precision))
        yield Broken("trainer's precisions", f"{precision.name} is not among {', '.join(can)}", mended)


def _node(trainer: Trainer, plan: Plan, around: Surroundings) -> Iterator[Broken]:
    tensor = plan.axis(Tensor)
    if tensor is not None and trainer.legal.tensor_in_node and 0 < around.node < tensor.ranks:
        why = f"{axis_text(tensor)} over nodes of {around.node} ranks; a tensor axis stays in a node"
        yield Broken("tensor inside a node", why, _narrowed(plan, tensor, math.gcd(tensor.ranks, around.node)))


def _divides(trainer: Trainer, plan: Plan, around: Surroundings) -> Iterator[Broken]:
    tensor = plan.axis(Tensor)
    if tensor is None or tensor.ranks == 1:
        return
    for asked, size, what in (
        (trainer.legal.heads_divide, around.heads, "heads"),
        (trainer.legal.vocabulary_divide, around.vocabulary, "words of the vocabulary"),
    ):
        if asked and size and size % tensor.ranks:
            why = f"{size} {what} are not a multiple of {axis_text(tensor)}"
            mended = _narrowed(plan, tensor, math.gcd(size, tensor.ranks))
            yield Broken(f"{what.split()[-1]} divide", why, mended)


def _stages(trainer: Trainer, plan: Plan, around: Surroundings) -> Iterator[Broken]:
    pipeline, layers = plan.axis(Pipeline), around.layers
    if pipeline is None or pipeline.ranks == 1:
        return
    if len(set(pipeline.split)) > 1 and not trainer.legal.uneven_stages:
        equal = msgspec.structs.replace(pipeline, split=())
        yield Broken(
            "equal stages", f"{axis_text(pipeline)}, but its stages are not chosen", _with(plan, pipeline, equal)
        )
        return
    stages = _stage_count(pipeline, pipeline.ranks)
    if not layers or pipeline.split:
        return
    if trainer.legal.layers_divide and layers % stages:
        fewer = _fewer(pipeline, lambda count: layers % count == 0)
        why = f"{layers} layers are not a multiple of {stages} stages"
        yield Broken("layers divide", why, _narrowed(plan, pipeline, fewer))
    elif not trainer.legal.empty_stages and _empty(trainer, stages, around):
        fewer = _fewer(pipeline, lambda count: not _empty(trainer, count, around))
        counts = _grouped(layers_per_stage(trainer.pipeline.split, layers, stages, around.costs))
        why = f"{layers} layers on {stages} stages are {counts}; {_empty(trainer, stages, around)} would have nothing"
        yield Broken("no empty stage", why, _narrowed(plan, pipeline, fewer))


def _grouped(counts: tuple[int, ...]) -> str:
    """Layers per stage, equal ones together: 2 x 5, 3 x 4."""
    return ", ".join(f"{len(list(same))} x {count}" for count, same in groupby(counts))


def _empty(trainer: Trainer, stages: int, around: Surroundings) -> int:
    return empty_stages(trainer.pipeline.split, around.layers, stages, around.costs)


def _stage_count(pipeline: Pipeline, ranks: int) -> int:
    """Different stages on so many ranks."""
    schedule = find(pipeline.schedule)
    return ranks * max(pipeline.chunks, schedule.least_chunks) // schedule.copies


def _fewer(pipeline: Pipeline, passes: Callable[[int], bool]) -> int:
    """The most pipeline ranks that divide those of the plan and pass."""
    divisors = [ranks for ranks in range(pipeline.ranks, 0, -1) if pipeline.ranks % ranks == 0]
    return next((ranks for ranks in divisors if passes(_stage_count(pipeline, ranks))), 1)


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
    _precisions,
)


def _ranks(plan: Plan, kind: type[Strategy]) -> int:
    axis = plan.axis(kind)
    return 1 if axis is None else axis.ranks


def _listed(words: tuple[Any, ...]) -> str:
    return ", ".join(words) if words else "none"


def _with(plan: Plan, old: Strategy, new: Strategy) -> Plan:
    axes = tuple(new if axis is old else axis for axis in plan.axes)
    return msgspec.structs.replace(plan, axes=tuple(axis for axis in axes if axis is not new or axis.world > 1))


def _with_policy(plan: Plan, policy: Any) -> Plan:
    others = tuple(other for other in plan.policies if other.word != policy.word)
    return msgspec.structs.replace(plan, policies=(*others, policy))


def _counted(plan: Plan, microbatches: int) -> Plan:
    return _with_policy(plan, Microbatches(count=microbatches))


def _stored(plan: Plan, data: Data, can: tuple[str, ...]) -> Plan:
    """The most that a trainer puts in shares, up to what was asked; else the least that it can."""
    below = [word for word in can if word <= data.storage]
    storage = max(below, default=min(can, default="replicated"))
    whole = storage == "replicated"
    ranks, shard = (data.world, 0) if whole else (data.ranks, data.shard)
    return _with(plan, data, msgspec.structs.replace(data, storage=storage, ranks=ranks, shard=shard))


def _as_data(plan: Plan, axis: Strategy) -> Plan:
    """The plan with the ranks of an axis as data ranks."""
    return _more_data(msgspec.structs.replace(plan, axes=tuple(a for a in plan.axes if a is not axis)), axis.world)


def _narrowed(plan: Plan, axis: Strategy, ranks: int) -> Plan:
    """The plan with fewer ranks on an axis, the others as data ranks."""
    narrow = msgspec.structs.replace(axis, ranks=ranks)
    return _more_data(_with(plan, axis, narrow), axis.ranks // ranks)


def _more_data(plan: Plan, times: int) -> Plan:
    """The plan with so many times the data ranks; outside the other axes but the pipeline if there were none."""
    data = plan.axis(Data)
    if times == 1:
        return plan
    if data is not None:
        return _with(plan, data, msgspec.structs.replace(data, ranks=data.ranks * times))
    place = 1 + max((at for at, axis in enumerate(plan.axes) if isinstance(axis, Pipeline)), default=-1)
    axes = (*plan.axes[:place], Data(ranks=times), *plan.axes[place:])
    return msgspec.structs.replace(plan, axes=axes)
