"""What the verbs that take a plan have in common: their options, and the setting that these stand for."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import click
import msgspec

from foretell.errors import BadInput, ForetellError, unknown
from foretell.hardware import catalog
from foretell.hardware.cluster import Cluster
from foretell.model.graph import Graph
from foretell.model.optimizer import OPTIMIZERS
from foretell.model.source import load
from foretell.plan.fitness import refusals
from foretell.plan.job import Job, batch_ranks, make_job, micro_batch, per_rank
from foretell.plan.plan import Plan, grid_of
from foretell.plan.policies.precision import Precision
from foretell.plan.refusal import Refusal, refused
from foretell.plan.setting import Setting, with_precision
from foretell.plan.strategies.data import Data
from foretell.plan.strategy import Strategy
from foretell.plan.text import parse
from foretell.plan.trainer import names as trainer_names
from foretell.plan.trainer import trainer
from foretell.units import FLOATING

EXAMPLE = "foretell {verb} llama3-8b --on 16xh100 --plan 'dp2:zero3 tp8:sp +bf16' --batch 32"
HERE = "foretell run lenet --plan dp2 --batch 64"
"""What runs on the machine that somebody sits at."""


def _example() -> str:
    """What would work, with the verb that was typed."""
    context = click.get_current_context(silent=True)
    verb = context.info_name if context else "predict"
    return HERE if verb == "run" else EXAMPLE.format(verb=verb)


def _not_blank(context: click.Context, option: click.Parameter, text: str | None) -> str:
    """A name as it was typed, nothing where it was not; a blank one is refused with all that there are."""
    if text is not None and not text.strip():
        known = trainer_names() if option.name == "trainer" else OPTIMIZERS
        raise BadInput(f"--{option.name} has no name", where=f"--{option.name}", fix=", ".join(sorted(known)))
    return text or ""


_OPTIONS = (
    click.argument("model", required=False),
    click.option("--from-config", metavar="FILE", help="What you run today: a trainer's configuration or script."),
    click.option("--plan", metavar="TEXT", help="Axes and policies: 'dp8:zero3 tp8:sp +bf16'."),
    click.option("--on", "cluster", metavar="CLUSTER", help="The cluster: 64xh100, dgx-a100, my.toml."),
    click.option("--batch", type=int, metavar="N", help="Samples of a step, of all ranks together."),
    click.option("--batch-per-rank", type=int, metavar="N", help="Samples of a step for each rank that splits them."),
    click.option("--seq", type=int, metavar="N", help="Tokens in a sequence."),
    click.option(
        "--trainer", metavar="NAME", default="pytorch", callback=_not_blank, help="The software that runs it (pytorch)."
    ),
    click.option("--optimizer", metavar="NAME", callback=_not_blank, help="The update rule (the trainer's)."),
)


def planned(verb: Callable[..., None]) -> Callable[..., None]:
    """Give a verb the options from which `read` makes a setting; it gets them as one `Given`."""

    @functools.wraps(verb)  # with the options that it has of its own
    def called(**options: Any) -> None:
        verb(given_of(options), **options)

    for option in reversed(_OPTIONS):
        called = option(called)
    return called


def given_of(options: dict[str, Any]) -> Given:
    """Take these options out of all that were typed."""
    file: str | None = options.pop("from_config")
    typed = {name: options.pop(name) for name in Given._fields if name != "notes"}
    if file is None and typed["model"] is None:
        raise BadInput("no model is given", where="MODEL", fix=_example())
    given = Given(**typed)
    if file is not None:
        from foretell.cli.config_options import filled

        given = filled(given, file)
    return given


class Given(NamedTuple):
    """The options as they were typed; None where they were not."""

    model: str
    plan: str | None
    cluster: str | None
    batch: int | None
    batch_per_rank: int | None
    seq: int | None
    trainer: str
    optimizer: str
    notes: tuple[str, ...] = ()  # how a configuration was read, where one was


class Asked(NamedTuple):
    """A setting that fits, the cluster if one was named, and what had to be chosen on the way."""

    model: str  # as it was typed
    setting: Setting
    cluster: Cluster | None
    notes: tuple[str, ...]

    @property
    def micro_batch(self) -> int:
        """Samples that one rank takes at a time."""
        return micro_batch(self.setting.job, self.setting.plan)


def read(given: Given) -> Asked:
    """The setting that the options stand for. One that does not fit is refused, never adjusted."""
    if given.plan is None or not given.plan.strip():
        raise BadInput("no plan is given", where="--plan", fix=_example())
    if given.batch is not None and given.batch_per_rank is not None:
        raise BadInput("--batch and --batch-per-rank together", fix="one of them")
    for name, what, value in (("--batch", "batch", given.batch), ("--seq", "sequence", given.seq)):
        if value is not None and value < 1:
            fix = "1 or more, for all ranks together" if name == "--batch" else "1 or more tokens: --seq 4096"
            raise BadInput(f"a {what} of {value}", where=name, fix=fix)
    plan = parse(given.plan)
    named = catalog.named(given.cluster) if given.cluster is not None else None
    found = trainer(given.trainer)
    graph, job, notes = _loaded(given, plan)
    setting = Setting(graph, job, plan, found)
    cluster = named.cluster if named else None
    _check(setting, cluster)
    if named is not None:
        notes += (*named.notes, *_packed(plan, named.cluster), *_units(setting.plan, named.cluster))
    return Asked(given.model, setting, cluster, (*(given.notes or ()), *notes, *_types(given.model, graph, plan)))


# the batch and the model


def _loaded(given: Given, plan: Plan) -> tuple[Graph, Job, tuple[str, ...]]:
    """The graph of one micro-batch over all ranks, and the job."""
    dtype = with_precision(plan, trainer(given.trainer)).policy(Precision).format.activation
    asked = given.batch if given.batch_per_rank is None else per_rank(given.batch_per_rank, plan)
    if asked is not None:
        job = _job(given, asked)
        return load(given.model, max(1, asked // plan.microbatches), given.seq, dtype), job, ()
    shares = batch_ranks(plan)
    try:
        graph = load(given.model, shares, given.seq, dtype)
    except BadInput:  # a graph or a factory for a batch of its own
        graph = load(given.model, None, given.seq, dtype)
    batch = graph.batch * plan.microbatches
    if graph.batch == shares:
        note = f"no batch is given: 1 sample for each rank that splits it and each micro-batch, {batch} in all"
    else:
        note = f"no batch is given: the model has a batch of {graph.batch} for each micro-batch, {batch} in all"
    return graph, _job(given, batch), (note,)


def _job(given: Given, batch: int) -> Job:
    if given.optimizer and given.optimizer not in OPTIMIZERS:
        raise unknown("optimizer", given.optimizer, OPTIMIZERS).within("--optimizer")
    return make_job(batch, trainer=given.trainer, optimizer=given.optimizer, sequence=given.seq or 0)


def _types(model: str, graph: Graph, plan: Plan) -> Iterator[str]:
    """A note where the model's activations are not of the type that the plan's precision gives them."""
    precision = plan.policy(Precision)
    made = (
        tensor.dtype
        for block in graph.blocks
        for tensor in block.tensors
        if tensor.role == "parameter" and tensor.dtype in FLOATING
    )
    own = next(made, precision.format.activation)
    if own != precision.format.activation:
        yield (
            f"{model} is written in {own} and +{precision.name} computes in {precision.format.activation}: "
            f"activations are counted in {own}"
        )


# whether it fits


def _check(setting: Setting, cluster: Cluster | None) -> None:
    """Refuse a setting that breaks rules: all of them, each with its numbers and a way out."""
    found = tuple(refusals(setting, cluster))
    if cluster is not None and setting.plan.ranks > cluster.ranks:
        found = tuple(_with_neighbour(refusal, setting, cluster) for refusal in found)
    if found:
        raise refused(setting.plan, found)


def _units(plan: Plan, cluster: Cluster) -> Iterator[str]:
    """A note where no device has units for the plan's precision."""
    precision = plan.policy(Precision)
    for device in {group.device.name: group.device for group in cluster.groups}.values():
        if not device.supports(precision.format.kernels) and precision.format.kernels != "tf32":
            yield f"{device.name} has no units for products in {precision.format.kernels} (+{precision.name})"


def _packed(plan: Plan, cluster: Cluster) -> Iterator[str]:
    if plan.ranks < cluster.ranks:
        nodes = -(-plan.ranks // cluster.ranks_per_node)
        where = f"on {nodes} of its {cluster.nodes} nodes" if cluster.nodes > 1 else "on its first devices"
        yield f"the plan takes {plan.ranks} of the {cluster.ranks} ranks of {cluster.text}, packed {where}"


def _with_neighbour(refusal: Refusal, setting: Setting, cluster: Cluster) -> Refusal:
    """The refusal of a plan that is too large, with a plan beside it that is not."""
    if refusal.rule != "enough ranks":
        return refusal
    ways = [f"--plan '{smaller}'" for smaller in itertools.islice(_smaller(setting, cluster), 1)]
    ways += _larger(setting.plan, cluster)
    return msgspec.structs.replace(refusal, way_out=", or ".join(ways) or refusal.way_out)


def _larger(plan: Plan, cluster: Cluster) -> Iterator[str]:
    """The same cluster with enough ranks, where its text has a count and such a cluster exists."""
    count, times, rest = cluster.text.partition("x")
    if times and count == str(cluster.ranks):
        text = f"{plan.ranks}x{rest}"
        try:
            found = catalog.cluster(text)
        except ForetellError:
            return
        if found.ranks >= plan.ranks:
            yield f"--on {text}"


MOST_TRIED = 8
"""Smaller plans that are tried before a person is told to find one."""

MOST_WEIGHED = 10_000
"""Combinations of smaller axes that are put in order."""


def _smaller(setting: Setting, cluster: Cluster) -> Iterator[Plan]:
    """Plans like this one that the cluster holds, that fit and can be lowered, the nearest first."""
    from foretell.program.expand import expand
    from foretell.program.lower import lower

    for plan in itertools.islice(_shrunk(setting.plan, cluster.ranks), MOST_TRIED):
        smaller = msgspec.structs.replace(setting, plan=plan)
        try:
            if parse(str(plan)) == plan and not any(refusals(smaller, cluster)):
                expand(lower(smaller))
                yield plan
        except ForetellError:
            continue


def _shrunk(plan: Plan, most: int) -> Iterator[Plan]:
    """The plan with fewer ranks on some axes: as many ranks as can be, on as few axes, data first, inner ones last."""
    choices: list[Sequence[Strategy]] = [_narrower(axis) for axis in plan.axes]
    while math.prod(map(len, choices)) > MOST_WEIGHED:  # very many: leave the innermost as it is
        place = max(at for at, axes in enumerate(choices) if len(axes) > 1)
        choices[place] = choices[place][:1]
    found: list[tuple[tuple[int, int, tuple[int, ...]], int, tuple[Strategy, ...]]] = []
    for axes in itertools.product(*choices):
        ranks = math.prod(axis.world for axis in axes)
        if ranks <= most:
            pairs = list(zip(plan.axes, axes, strict=True))
            changed = sum(old != new for old, new in pairs)
            narrowed = tuple(old.world // new.world for old, new in reversed(pairs) if not isinstance(old, Data))
            found.append(((-ranks, changed, narrowed), len(found), axes))
    for _, _, axes in sorted(found, key=lambda one: one[:2]):
        yield msgspec.structs.replace(plan, axes=tuple(axis for axis in axes if axis.world > 1))


def _narrower(axis: Strategy) -> Sequence[Strategy]:
    """The axis as it is, and with fewer ranks that divide those it has."""
    if isinstance(axis, Data) and axis.shard > 1:  # replicas of shares; one replica needs no word for it
        pairs = itertools.product(_divisors(axis.ranks), _divisors(axis.shard)[:-1])
        hybrid = [(ranks, shard) if ranks > 1 else (shard, 0) for ranks, shard in pairs]
        return [msgspec.structs.replace(axis, ranks=ranks, shard=shard) for ranks, shard in hybrid] + [Data(ranks=1)]
    if grid_of(axis):
        grids = itertools.product(*(_divisors(ranks) for ranks in grid_of(axis)))
        return [msgspec.structs.replace(axis, ranks=math.prod(grid), grid_ranks=grid) for grid in grids]
    return [msgspec.structs.replace(axis, ranks=ranks) for ranks in _divisors(axis.ranks)]


def _divisors(number: int) -> list[int]:
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)}, reverse=True)
