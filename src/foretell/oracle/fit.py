"""Does a model fit a cluster, with which plan, and with how many samples at a time?

Without a plan a short ladder of common plans is tried, never all that there are. Each one that fits is
predicted with its largest micro-batch, and the one that trains most samples a second is the answer. If
none fits, the answer is the one that misses by least, and what would fit: each change was predicted too.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from foretell.errors import BadInput, ForetellError
from foretell.hardware import catalog, members
from foretell.hardware.cluster import Cluster
from foretell.model.graph import Graph
from foretell.model.source import LARGEST_BATCH, load
from foretell.oracle.predict import USABLE, Prediction, predict
from foretell.plan.facts import Facts, facts
from foretell.plan.fitness import refusals
from foretell.plan.job import Job, batch_ranks
from foretell.plan.plan import Plan, axis_text
from foretell.plan.policies.microbatches import Microbatches
from foretell.plan.policies.offload import Offload
from foretell.plan.policies.precision import Precision
from foretell.plan.policies.recompute import Recompute
from foretell.plan.policy import Policy
from foretell.plan.setting import Setting, with_precision
from foretell.plan.strategies.data import Data
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.strategies.tensor import Tensor
from foretell.plan.text import parse
from foretell.plan.trainer import Trainer, allows, trainer
from foretell.units import ceil_div

ROUNDS: Final = 4
"""Micro-batches for each pipeline rank where no batch is given: the bubble is then about a fifth of the step
((p - 1) of (m + p - 1), Narayanan et al. 2021, arXiv 2104.04473, section 2.2, with m = 4 p)."""

GUESSES: Final = 8
"""Sizes that are guessed by how memory grows before the rest is halved."""

MOST_TENSOR: Final = 8
"""Tensor ranks of the ladder's plans at most: the largest that published runs use inside a node
(Narayanan et al. 2021, arXiv 2104.04473, takeaway 1)."""

PIPELINES: Final = (2, 4, 8, 16)
"""Pipeline ranks that the ladder tries."""

ENOUGH: Final = 3
"""Plans of the ladder that fit before the walk ends."""

ROOMY: Final = 32
"""A plan whose ranks take so many samples at a time is not helped by more memory: the walk ends there."""

ALIKE: Final = 0.02
"""Plans whose speeds differ by less are alike, and the simpler one, higher on the ladder, is taken."""

EXACT: Final = 64
"""The largest micro-batch is exact up to here; above, it is one with six binary digits, at most 3 % below."""

SHORTEST: Final = 512
"""Tokens below which no shorter sequence is proposed."""

GROWTH: Final = (2, 4, 8, 16, 32, 64)
"""How many times as many ranks are proposed at most."""


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked. 0 and empty: not said."""

    model: str
    cluster: Cluster
    trainer: Trainer
    plan: Plan | None = None
    batch: int = 0  # samples of a step, of all ranks together
    seq: int = 0
    optimizer: str = ""
    graph: Graph | None = None  # a model that is given as a graph, for the batch that it has
    notes: tuple[str, ...] = ()  # on what was chosen for the person who asks


class Rung(msgspec.Struct, frozen=True):
    """One plan that was tried."""

    plan: str
    fits: bool
    micro_batch: int  # the largest that fits, or the smallest that there is; 0 where the plan is refused
    memory_bytes: float  # with it
    samples_per_second: float
    why: str  # not: the rule that refuses it; empty where it was predicted


class Change(msgspec.Struct, frozen=True):
    """Something else that fits: proved by predicting it."""

    what: str
    plan: str
    cluster: str
    seq: int  # 0: as it was
    micro_batch: int
    memory_bytes: float
    capacity: float
    samples_per_second: float


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """The answer."""

    model: str
    cluster: str
    trainer: str
    fits: bool
    plan: str  # the fastest that fits, or the one that misses by least
    micro_batch: int  # samples of one rank at a time: the largest that fits, or the smallest that there is
    limit: str  # why not more samples at a time: memory, batch, model
    sample_bytes: float  # what one more sample at a time takes; 0 where only one size was predicted
    free_bytes: float  # of what a run can use; less than nothing if it does not fit
    prediction: Prediction
    batch: int  # as it was asked; 0: not said
    seq: int  # the same
    tried: tuple[Rung, ...]
    changes: tuple[Change, ...]  # the smallest first; none where it fits
    notes: tuple[str, ...]


class Found(NamedTuple):
    """A plan with the samples of one rank at a time, predicted."""

    asked: Plan  # as it was asked, perhaps without a word on micro-batches
    plan: Plan
    micro: int
    prediction: Prediction
    setting: Setting


def fit(wish: Wish) -> Fit:
    """Answer a wish."""
    return fitted(wish)[0]


def fitted(wish: Wish) -> tuple[Fit, Setting]:
    """The answer, with the setting that it was predicted for."""
    asked = _Asker(wish)
    walked = [asked.climb(wish.plan)] if wish.plan else list(_walk(asked))
    found = [one.best for one in walked if one.best]
    if not found:
        raise _refused(wish, walked)
    fitting = [one for one in found if one.prediction.fits]
    if fitting:
        fastest = max(one.prediction.samples_per_second for one in fitting)
        best = next(one for one in fitting if one.prediction.samples_per_second >= (1 - ALIKE) * fastest)
    else:
        best = min(found, key=lambda one: one.prediction.memory_bytes)
    answer = Fit(
        model=wish.model,
        cluster=wish.cluster.text,
        trainer=wish.trainer.name,
        fits=best.prediction.fits,
        plan=str(best.plan),
        micro_batch=best.micro,
        limit=asked.limit(best),
        sample_bytes=asked.sample_bytes(best),
        free_bytes=USABLE * best.prediction.capacity - best.prediction.memory_bytes,
        prediction=best.prediction,
        batch=wish.batch,
        seq=wish.seq,
        tried=tuple(one.rung for one in walked),
        changes=() if fitting else tuple(_changes(asked, best)),
        notes=tuple(asked.notes()),
    )
    return answer, best.setting


def _walk(asked: _Asker) -> Iterator[Climbed]:
    """Down the ladder until enough plans fit. What only saves memory is not tried where there is enough."""
    fitting: set[Plan] = set()
    for plan in ladder(asked.wish.cluster, asked.facts, asked.wish.trainer):
        if with_policy(plan, Recompute()) in fitting:
            continue
        one = asked.climb(plan)
        yield one
        if one.rung.fits:
            fitting.add(plan)
            if len(fitting) == ENOUGH or one.rung.micro_batch >= ROOMY:
                return


def _refused(wish: Wish, walked: Sequence[Climbed]) -> BadInput:
    first = walked[0]
    if wish.plan:
        return BadInput(f"{first.rung.plan} does not fit: {first.rung.why}", where="--plan", fix=first.way_out)
    rungs = "\n".join(f"  {one.rung.plan}: {one.rung.why}" for one in walked[:3])
    what = f"{wish.trainer.name} runs none of the {len(walked)} common plans on {wish.cluster.text}, such as\n{rungs}"
    return BadInput(what, fix=first.way_out or "--plan with a plan of your own")


# the ladder


def ladder(cluster: Cluster, model: Facts, trainer: Trainer) -> Iterator[Plan]:
    """Common plans that take all ranks of a cluster, those first that are usually fastest where they fit.

    Storage in shares costs more traffic with each stage, recomputation up to a forward pass, a tensor axis
    messages inside every layer, a pipeline its bubble. Plans that mean the same are there once.
    """
    precision = usual_precision(cluster, trainer)
    seen: set[Plan] = set()
    for text in _rungs(cluster, model, trainer):
        plan = parse(f"{text} +{precision}")
        if plan.ranks == cluster.ranks and plan not in seen:
            seen.add(plan)
            yield plan


def usual_precision(cluster: Cluster, trainer: Trainer) -> str:
    """bf16, or fp16 on a device without it, if the trainer runs that; else the trainer's own."""
    kinds = ("bf16", "fp16")
    can = (word for word in kinds if cluster.device.supports(word) and allows(trainer.legal.precisions, word))
    return next(can, trainer.defaults.precision)


def _rungs(cluster: Cluster, model: Facts, trainer: Trainer) -> Iterator[str]:
    ranks, node, nodes = cluster.ranks, cluster.ranks_per_node, cluster.nodes
    again = ("+recompute:attention", "+recompute:block") if model.heads else ("+recompute:block",)
    if ranks == 1:
        yield from ("dp1", *(f"dp1 {policy}" for policy in again))
        return
    yield from (f"dp{ranks}{storage}" for storage in ("", ":zero1", ":zero2", ":zero3"))
    yield from (f"dp{ranks}:zero3 {policy}" for policy in again)
    if nodes > 1 and node > 1:
        yield from (f"dp{nodes}:zero3,shard{node} {policy}" for policy in ("", again[-1]))
    experts = _most(min(node, ranks), node, model.experts)
    if experts > 1 and trainer.legal.experts:
        yield from (f"dp{ranks}:zero1,ep{experts} {policy}" for policy in ("", again[-1]))
    if model.heads:
        yield from _with_layers_in_parts(cluster, model, trainer)


def _most(limit: int, *sizes: int) -> int:
    """The most ranks up to a limit that divide all of these; 1 where one of them is nothing."""
    return max(n for n in range(1, limit + 1) if all(size % n == 0 for size in sizes)) if all(sizes) else 1


def _with_layers_in_parts(cluster: Cluster, model: Facts, trainer: Trainer) -> Iterator[str]:
    """A tensor axis inside the node, then a pipeline over nodes beside it."""
    ranks = cluster.ranks
    tensor = _most(MOST_TENSOR, cluster.ranks_per_node, model.heads)
    beside, staged = _storage(trainer.legal.storages), _storage(trainer.legal.storages_pipeline)
    inside = f"tp{tensor}{_sequence(model, tensor, trainer)}" if tensor > 1 else ""
    if tensor > 1:
        for storage, policy in ((beside, ""), (beside, "+recompute:block"), ("zero3", "+recompute:block")):
            yield f"{_data(ranks // tensor, storage)} {inside} {policy}"
    for stages in PIPELINES:
        data = ranks // tensor // stages
        if stages * tensor * data == ranks and stages <= model.layers:
            for policy in ("", "+recompute:block"):
                yield f"pp{stages}:1f1b {_data(data, staged)} {inside} {policy}"


def _data(ranks: int, storage: str) -> str:
    return f"dp{ranks}{f':{storage}' if storage else ''}" if ranks > 1 else ""


def _storage(legal: tuple[str, ...]) -> str:
    """zero1, or what the trainer has that is nearest to it; nothing if it shares nothing out."""
    return next((word for word in ("zero1", "zero2", "zero3") if allows(legal, word)), "")


def _sequence(model: Facts, ranks: int, trainer: Trainer) -> str:
    legal = trainer.legal.sequence_parallel
    return ":sp" if legal != "never" and model.sequence % ranks == 0 else ""


# one plan


class Climbed(NamedTuple):
    """What became of one plan: predicted at its largest micro-batch, or refused."""

    rung: Rung
    best: Found | None
    way_out: str


class _Asker:
    """Predicts plans for one wish; what was predicted once is remembered."""

    def __init__(self, wish: Wish) -> None:
        self.wish = wish
        self._graphs: dict[tuple[int, int, str], Graph] = {}
        self._found: dict[tuple[Plan, int, str, int], Found | tuple[str, str]] = {}
        first = wish.graph or load(wish.model, None, wish.seq or None)
        self.fixed = first if wish.graph or first.source not in ("zoo", "hf", "paradl") else None
        self.facts = facts(first)

    def notes(self) -> Iterator[str]:
        yield from self.wish.notes
        if self.fixed:
            yield f"{self.wish.model} is a graph for a batch of {self.fixed.batch}: no other size was tried"
        if self.wish.plan is None and not self.wish.batch:
            yield "no batch is given: each plan is compared with as many samples a step as it holds"

    def sizes(self, plan: Plan) -> Sequence[int]:
        """Samples that a rank could take at a time, in order."""
        shares = batch_ranks(plan)
        if self.fixed:
            return [max(1, self.fixed.batch // shares)]
        if not self.wish.batch:
            return _round_sizes(LARGEST_BATCH // shares)
        each = max(1, self.wish.batch // shares)
        if plan.microbatches > 1:  # the plan says how many; 1 is not written
            return [max(1, each // plan.microbatches)]
        return [n for n in range(1, each + 1) if each % n == 0] if each <= LARGEST_BATCH else [each]

    def counted(self, plan: Plan, micro: int) -> Plan:
        """The plan with the micro-batches that this size makes."""
        if plan.microbatches > 1:
            return plan
        pipeline = plan.axis(Pipeline)
        if self.wish.batch:
            count = max(1, self.wish.batch // (batch_ranks(plan) * micro))
        else:
            count = ROUNDS * pipeline.ranks if pipeline and pipeline.ranks > 1 else 1
        return with_policy(plan, Microbatches(count=count))

    def climb(self, plan: Plan) -> Climbed:
        """The largest micro-batch of a plan that fits, or how it fails with the smallest."""
        sizes = self.sizes(plan)
        found = self.ask(plan, sizes[0])
        if not isinstance(found, Found):
            why, way_out = found
            return Climbed(Rung(str(plan), False, 0, 0.0, 0.0, why), None, way_out)
        if found.prediction.fits:
            found = self._largest(plan, sizes, found)
        answer = found.prediction
        rung = Rung(str(found.plan), answer.fits, found.micro, answer.memory_bytes, answer.samples_per_second, "")
        return Climbed(rung, found, "")

    def _largest(self, plan: Plan, sizes: Sequence[int], best: Found) -> Found:
        """Memory grows with the samples and nearly in proportion: guess by the last two sizes, halve what is left."""
        low, high = 0, len(sizes)  # sizes[low] fits, sizes[high] does not
        other: Found | None = None
        for turn in itertools.count():
            if high - low < 2:
                return best
            at = low + 1 if other is None else _crossing(sizes, best, other)
            if turn > GUESSES:
                at = (low + high) // 2
            at = min(max(at, low + 1), high - 1)
            found = self.ask(plan, sizes[at])
            if isinstance(found, Found) and found.prediction.fits:
                low, other, best = at, best if other is None or other.prediction.fits else other, found
            else:
                high, other = at, found if isinstance(found, Found) else other
        raise AssertionError("the interval shrinks with every turn")

    def ask(self, plan: Plan, micro: int, cluster: Cluster | None = None, seq: int = 0) -> Found | tuple[str, str]:
        """Predict a plan; or the rule that refuses it, with a way out."""
        where = cluster or self.wish.cluster
        key = (plan, micro, where.text, seq)
        if key not in self._found:
            try:
                self._found[key] = self._ask(plan, micro, where, seq or self.wish.seq)
            except ForetellError as problem:
                self._found[key] = (problem.what, problem.fix)
        return self._found[key]

    def _ask(self, plan: Plan, micro: int, cluster: Cluster, seq: int) -> Found | tuple[str, str]:
        counted = with_precision(self.counted(plan, micro), self.wish.trainer)
        shares = batch_ranks(counted)
        graph = self._graph(micro * shares, seq, counted.policy(Precision).format.activation)
        job = Job(
            batch=self.wish.batch or graph.batch * counted.microbatches,
            trainer=self.wish.trainer.name,
            optimizer=self.wish.optimizer or self.wish.trainer.defaults.optimizer,
            sequence=seq,
        )
        setting = Setting(graph, job, counted, self.wish.trainer)
        for refusal in refusals(setting, cluster):
            return refusal.why, refusal.way_out
        return Found(plan, counted, micro, predict(setting, cluster), setting)

    def _graph(self, batch: int, seq: int, dtype: str) -> Graph:
        if self.fixed:
            return self.fixed
        key = (batch, seq, dtype)
        if key not in self._graphs:
            self._graphs[key] = load(self.wish.model, batch, seq or None, dtype)
        return self._graphs[key]

    def limit(self, best: Found) -> str:
        """Why a rank takes no more samples at a time."""
        if self.fixed:
            return "model"
        sizes = self.sizes(self.wish.plan or without_microbatches(best.plan))
        return "batch" if best.prediction.fits and best.micro >= sizes[-1] else "memory"

    def sample_bytes(self, best: Found) -> float:
        """What one more sample at a time takes, by the nearest other size that was predicted."""
        others = [
            one
            for one in self._found.values()
            if isinstance(one, Found)
            and one.micro != best.micro
            and one.prediction.cluster == best.prediction.cluster
            and without_microbatches(one.plan) == without_microbatches(best.plan)
        ]
        if not others:
            return 0.0
        other = min(others, key=lambda one: abs(one.micro - best.micro))
        return (other.prediction.memory_bytes - best.prediction.memory_bytes) / (other.micro - best.micro)


def _round_sizes(most: int) -> Sequence[int]:
    """All sizes up to some, and those of six binary digits above."""
    found = list(range(1, min(most, EXACT) + 1))
    step = 2
    while found[-1] + step <= most:
        found += range(found[-1] + step, min(most, 2 * found[-1]) + 1, step)
        step *= 2
    return found


def _crossing(sizes: Sequence[int], best: Found, other: Found) -> int:
    """The largest size that fits if memory goes on from one prediction to another as it does between them."""
    slope = (other.prediction.memory_bytes - best.prediction.memory_bytes) / (other.micro - best.micro)
    room = USABLE * best.prediction.capacity - best.prediction.memory_bytes
    largest = best.micro + room / slope if slope > 0 else math.inf
    at = bisect.bisect_right(sizes, largest) - 1
    return at + 1 if sizes[at] == best.micro else at  # that one fits: the next one is the question


def with_policy(plan: Plan, policy: Policy) -> Plan:
    """The plan with this policy in the place of another of its kind."""
    others = tuple(other for other in plan.policies if other.word != policy.word)
    return msgspec.structs.replace(plan, policies=(*others, policy))


def without_microbatches(plan: Plan) -> Plan:
    """The plan without a word on micro-batches."""
    return with_policy(plan, Microbatches())


# what would fit


def _changes(asked: _Asker, worst: Found) -> Iterator[Change]:
    """What would fit, the smallest change first: of the plan, then of the sequence, then of the hardware."""
    found: list[Change] = []
    for kind in (_smaller_passes, _policies, _storages, _axes):
        found += _proved(asked, kind(asked, worst))
    yield from sorted(found, key=lambda change: -change.samples_per_second)
    for kind in (_shorter, _larger_devices, _more_ranks):
        yield from _proved(asked, kind(asked, worst))


class Proposal(NamedTuple):
    """A change that nobody predicted yet. Of several for one group the first that fits is enough."""

    what: str
    plan: Plan
    group: str
    cluster: Cluster | None = None
    seq: int = 0


def _proved(asked: _Asker, proposals: Iterator[Proposal]) -> Iterator[Change]:
    """Those that fit when they are predicted."""
    done: set[str] = set()
    for one in proposals:
        if one.group in done:
            continue
        found = asked.ask(one.plan, asked.sizes(one.plan)[0], one.cluster, one.seq)
        if isinstance(found, Found) and found.prediction.fits:
            done.add(one.group)
            answer = found.prediction
            yield Change(
                one.what,
                str(found.plan),
                answer.cluster,
                one.seq,
                found.micro,
                answer.memory_bytes,
                answer.capacity,
                answer.samples_per_second,
            )


def _smaller_passes(asked: _Asker, worst: Found) -> Iterator[Proposal]:
    """The same samples in more micro-batches."""
    if asked.fixed:
        return
    for micro in range(worst.micro - 1, 0, -1):
        times = worst.micro // micro
        if worst.micro % micro == 0:
            count = worst.plan.microbatches * times
            plan = with_policy(worst.asked, Microbatches(count=count))
            yield Proposal(f"{count} micro-batches of {micro}", plan, "passes")


def _policies(asked: _Asker, worst: Found) -> Iterator[Proposal]:
    order = ("none", "attention", "block")
    now = worst.asked.policy(Recompute).granularity
    for word in order[order.index(now) + 1 :] if now in order else ():
        plan = with_policy(worst.asked, Recompute(granularity=word))
        yield Proposal(f"+recompute:{word}", plan, "recompute")
    offload = worst.asked.policy(Offload)
    if not offload.optimizer:
        plan = with_policy(worst.asked, msgspec.structs.replace(offload, moved=(*offload.moved, "optimizer")))
        yield Proposal("+offload:optimizer", plan, "offload")


def _storages(asked: _Asker, worst: Found) -> Iterator[Proposal]:
    data = worst.asked.axis(Data)
    if data is None or data.world == 1:
        return
    order = ("replicated", "zero1", "zero2", "zero3")
    for word in order[order.index(data.storage) + 1 :]:
        plan = _with_axis(worst.asked, data, msgspec.structs.replace(data, storage=word))
        yield Proposal(f"{word} instead of {data.storage}", plan, "storage")


def _axes(asked: _Asker, worst: Found) -> Iterator[Proposal]:
    """Ranks of the data axis that become tensor or pipeline ranks."""
    data = worst.asked.axis(Data)
    if data is None or data.shard or asked.fixed:
        return
    for factor in (n for n in (2, 4, 8) if data.ranks % n == 0):
        rest = msgspec.structs.replace(data, ranks=data.ranks // factor)
        plan = _with_axis(worst.asked, data, rest)
        for axis in _wider(worst.asked, factor):
            yield Proposal(f"{axis.word}{axis.ranks}", _joined(plan, axis), axis.word)


def _wider(plan: Plan, factor: int) -> Iterator[Tensor | Pipeline]:
    tensor, pipeline = plan.axis(Tensor), plan.axis(Pipeline)
    yield msgspec.structs.replace(tensor, ranks=tensor.ranks * factor) if tensor else Tensor(ranks=factor)
    yield msgspec.structs.replace(pipeline, ranks=pipeline.ranks * factor) if pipeline else Pipeline(ranks=factor)


def _joined(plan: Plan, axis: Tensor | Pipeline) -> Plan:
    """The plan with this axis in its usual place: pipelines outermost, tensors innermost."""
    others = tuple(one for one in plan.axes if one.word != axis.word and one.world > 1)
    axes = (axis, *others) if isinstance(axis, Pipeline) else (*others, axis)
    return msgspec.structs.replace(plan, axes=axes)


def _with_axis(plan: Plan, old: Data, new: Data) -> Plan:
    axes = tuple(new if axis is old else axis for axis in plan.axes)
    return msgspec.structs.replace(plan, axes=tuple(axis for axis in axes if axis.world > 1))


def _shorter(asked: _Asker, worst: Found) -> Iterator[Proposal]:
    length = facts(worst.setting.graph).sequence // 2
    while length >= SHORTEST and not asked.fixed:
        yield Proposal(f"sequences of {length}", worst.asked, "sequence", seq=length)
        length //= 2


def _larger_devices(asked: _Asker, worst: Found) -> Iterator[Proposal]:
    """The same plan on devices with more memory that are as fast, the smallest first."""
    now = asked.wish.cluster.device
    kernels = worst.plan.policy(Precision).format.kernels
    others = [members.device(name) for name in members.names("devices")]
    fitting = [
        one
        for one in others
        if one.memory_bytes > now.memory_bytes
        and one.supports(kernels)
        and one.matrix_rate(kernels) >= now.matrix_rate(kernels)
    ]
    for device in sorted(fitting, key=lambda one: one.memory_bytes):
        cluster = _cluster(f"{worst.asked.ranks}x{device.name}")
        if cluster:
            yield Proposal(f"on {cluster.text}", worst.asked, "device", cluster)


def _more_ranks(asked: _Asker, worst: Found) -> Iterator[Proposal]:
    """More of the same nodes: as more data ranks that share the weights, beside what other axes there are."""
    if asked.fixed:
        return
    for factor in GROWTH:
        cluster = _grown(asked.wish.cluster, worst.asked.ranks * factor)
        if cluster is None:
            continue
        for plan in _spread(worst.asked, factor):
            data = next(axis for axis in plan.axes if isinstance(axis, Data))
            yield Proposal(f"on {cluster.text}, {axis_text(data)}", plan, "ranks", cluster)


def _spread(plan: Plan, factor: int) -> Iterator[Plan]:
    """The plan on more data ranks: stored as it is, and with weights in shares."""
    data = plan.axis(Data)
    if data is None or data.world == 1:
        others = tuple(axis for axis in plan.axes if axis.world > 1)
        at = 1 if others and isinstance(others[0], Pipeline) else 0
        for storage in ("zero1", "zero3"):
            axes = (*others[:at], Data(ranks=factor, storage=storage), *others[at:])
            yield msgspec.structs.replace(plan, axes=axes)
        return
    more = msgspec.structs.replace(data, ranks=data.ranks * factor)
    yield _with_axis(plan, data, more)
    if data.storage != "zero3":
        yield _with_axis(plan, data, msgspec.structs.replace(more, storage="zero3"))


def _grown(cluster: Cluster, ranks: int) -> Cluster | None:
    """A larger cluster of the same kind, as its text says how many there are."""
    count, times, rest = cluster.text.partition("x")
    name, colon, part = cluster.text.rpartition(":")
    if colon and part.isdecimal():
        return _cluster(f"{name}:{ranks}")
    if times and count.isdecimal() and int(count) == cluster.ranks:
        return _cluster(f"{ranks}x{rest}")
    if times and count.isdecimal():
        return _cluster(f"{ceil_div(int(count) * ranks, cluster.ranks)}x{rest}")
    return _cluster(f"{ceil_div(ranks, cluster.ranks)}x{cluster.text}")


def _cluster(text: str) -> Cluster | None:
    try:
        return catalog.cluster(text)
    except ForetellError:
        return None


def wish(
    model: str,
    cluster: str | Cluster,
    plan: str | Plan | None = None,
    *,
    batch: int | None = None,
    trainer_name: str = "pytorch",
    seq: int | None = None,
    optimizer: str = "",
    graph: Graph | None = None,
) -> Wish:
    """A wish from what a person writes."""
    if batch is not None and batch < 1:
        raise BadInput(f"a batch of {batch}", where="--batch", fix="1 or more, for all ranks together")
    named = catalog.named(cluster) if isinstance(cluster, str) else catalog.Named(cluster, ())
    return Wish(
        model=model,
        cluster=named.cluster,
        trainer=trainer(trainer_name),
        plan=parse(plan) if isinstance(plan, str) else plan,
        batch=batch or 0,
        seq=seq or 0,
        optimizer=optimizer,
        graph=graph,
        notes=named.notes,
    )
