"""What would fit where a plan does not: each change was predicted, and only those that fit are told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from foretell.errors import ForetellError
from foretell.hardware import catalog, members
from foretell.hardware.cluster import Cluster
from foretell.oracle.batch_prober import BatchProber, ProbedPlan, with_policy
from foretell.plan.facts import facts
from foretell.plan.plan import Plan, axis_text
from foretell.plan.policies.microbatches import Microbatches
from foretell.plan.policies.offload import Offload
from foretell.plan.policies.precision import Precision
from foretell.plan.policies.recompute import Recompute
from foretell.plan.repair import divisors
from foretell.plan.strategies.data import Data
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.strategies.tensor import Tensor
from foretell.plan.syntax import MOST
from foretell.units import ceil_div

SHORTEST: Final = 512
"""Tokens below which no shorter sequence is proposed."""

GROWTH: Final = (2, 4, 8, 16, 32, 64)
"""How many times as many ranks are proposed at most."""


class PlanChange(msgspec.Struct, frozen=True):
    """Something else that fits: proved by predicting it."""

    what: str
    plan: str
    cluster: str
    seq: int  # 0: as it was
    micro_batch: int
    memory_bytes: float
    capacity: float  # bytes of a device
    usable: float  # that a run can fill of them
    samples_per_second: float


def changes(asked: BatchProber, worst: ProbedPlan) -> Iterator[PlanChange]:
    """What would fit, the smallest change first: of the plan, then of the sequence, then of the hardware."""
    found: list[PlanChange] = []
    for kind in (_smaller_passes, _policies, _storages, _axes):
        found += _proved(asked, worst, kind(asked, worst))
    yield from sorted(found, key=lambda change: -change.samples_per_second)
    for kind in (_shorter, _larger_devices, _more_ranks):
        yield from _proved(asked, worst, kind(asked, worst))


def two_changes(asked: BatchProber, worst: ProbedPlan) -> Iterator[PlanChange]:
    """Two changes of the plan together: the one that saves most of its kind, with each other one."""
    seen: set[frozenset[str]] = set()
    for kind in (_policies, _storages):
        last = {one.group: one for one in kind(asked, worst)}  # kinds go from the smallest saving to the largest
        for first in last.values():
            half = asked.ask(first.plan, asked.sizes(first.plan)[0])
            if isinstance(half, ProbedPlan):
                others = [_proved(asked, worst, other(asked, half)) for other in (_policies, _storages, _axes)]
                both = [change for found in others for change in found]
                for change in sorted(both, key=lambda change: -change.samples_per_second):
                    words = frozenset(change.plan.split())
                    if words in seen:
                        continue
                    seen.add(words)
                    yield msgspec.structs.replace(change, what=f"{first.what}, {change.what}")


class Proposal(NamedTuple):
    """A change that nobody predicted yet. Of several for one group the first that fits is enough."""

    what: str
    plan: Plan
    group: str
    cluster: Cluster | None = None
    seq: int = 0


def _proved(asked: BatchProber, worst: ProbedPlan, proposals: Iterator[Proposal]) -> Iterator[PlanChange]:
    """Those that fit when they are predicted, each with all that it changes in the plan that does not."""
    done: set[str] = set()
    for one in proposals:
        if one.group in done:
            continue
        found = _fastest(asked, one)
        if found is not None:
            done.add(one.group)
            answer = found.prediction
            yield PlanChange(
                _named(one, found, worst),
                str(found.plan),
                answer.cluster,
                one.seq,
                found.micro,
                answer.memory_bytes,
                answer.capacity,
                answer.usable,
                answer.samples_per_second,
            )


def _fastest(asked: BatchProber, one: Proposal) -> ProbedPlan | None:
    """A proposal that fits; where the batch is given, in as many micro-batches as make it fastest."""
    sizes = asked.sizes(one.plan)
    smallest = asked.ask(one.plan, sizes[0], one.cluster, one.seq)
    if not isinstance(smallest, ProbedPlan) or not smallest.prediction.fits:
        return None
    others = sizes[1:] if asked.request.batch else ()
    found = [smallest, *(asked.ask(one.plan, micro, one.cluster, one.seq) for micro in others)]
    fitting = [other for other in found if isinstance(other, ProbedPlan) and other.prediction.fits]
    return max(fitting, key=lambda other: (other.prediction.samples_per_second, other.micro))


def _named(one: Proposal, found: ProbedPlan, worst: ProbedPlan) -> str:
    """What is changed; another number of micro-batches is a change too."""
    if one.group == PASSES or found.plan.microbatches == worst.plan.microbatches:
        return one.what
    return f"{one.what}, +m{found.plan.microbatches}"


PASSES: Final = "passes"
"""The group of changes that are nothing but other numbers of micro-batches."""


def _smaller_passes(asked: BatchProber, worst: ProbedPlan) -> Iterator[Proposal]:
    """The same samples in more micro-batches."""
    if asked.fixed:
        return
    for micro in divisors(worst.micro)[1:]:
        count = worst.plan.microbatches * worst.micro // micro
        if count <= MOST:
            plan = with_policy(worst.asked, Microbatches(count=count))
            yield Proposal(f"{count} micro-batches of {micro}", plan, PASSES)


def _policies(asked: BatchProber, worst: ProbedPlan) -> Iterator[Proposal]:
    order = ("none", "attention", "block")
    now = worst.asked.policy(Recompute).granularity
    for word in order[order.index(now) + 1 :] if now in order else ():
        plan = with_policy(worst.asked, Recompute(granularity=word))
        yield Proposal(f"+recompute:{word}", plan, "recompute")
    offload = worst.asked.policy(Offload)
    if not offload.optimizer:
        plan = with_policy(worst.asked, msgspec.structs.replace(offload, moved=(*offload.moved, "optimizer")))
        yield Proposal("+offload:optimizer", plan, "offload")


def _storages(asked: BatchProber, worst: ProbedPlan) -> Iterator[Proposal]:
    data = worst.asked.axis(Data)
    if data is None or data.world == 1:
        return
    order = ("replicated", "zero1", "zero2", "zero3")
    for word in order[order.index(data.storage) + 1 :]:
        plan = _with_axis(worst.asked, data, msgspec.structs.replace(data, storage=word))
        yield Proposal(f"{word} instead of {data.storage}", plan, "storage")


def _axes(asked: BatchProber, worst: ProbedPlan) -> Iterator[Proposal]:
    """Ranks of the data axis that become tensor or pipeline ranks."""
    data = worst.asked.axis(Data)
    if data is None or data.shard or asked.fixed:
        return
    for factor in (n for n in (2, 4, 8) if data.ranks % n == 0):
        rest = msgspec.structs.replace(data, ranks=data.ranks // factor)
        plan = _with_axis(worst.asked, data, rest)
        for axis in _wider(worst.asked, factor):
            left = f" beside {rest.word}{rest.ranks}" if rest.ranks > 1 else ""
            yield Proposal(f"{axis.word}{axis.ranks}{left}", _joined(plan, axis), axis.word)


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


def _shorter(asked: BatchProber, worst: ProbedPlan) -> Iterator[Proposal]:
    length = facts(worst.setting.graph).sequence // 2
    while length >= SHORTEST and not asked.fixed:
        yield Proposal(f"sequences of {length}", worst.asked, "sequence", seq=length)
        length //= 2


def _larger_devices(asked: BatchProber, worst: ProbedPlan) -> Iterator[Proposal]:
    """The same plan on devices with more memory that are as fast, the smallest first."""
    now = asked.cluster.device
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


def _more_ranks(asked: BatchProber, worst: ProbedPlan) -> Iterator[Proposal]:
    """More of the same nodes: as more data ranks that share the weights, beside what other axes there are."""
    if asked.fixed:
        return
    for factor in GROWTH:
        cluster = grown(asked.cluster, worst.asked.ranks * factor)
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


def grown(cluster: Cluster, ranks: int) -> Cluster | None:
    """A cluster of the same kind with so many ranks or more, as its text says how many there are."""
    count, times, rest = cluster.text.partition("x")
    name, colon, part = cluster.text.rpartition(":")
    if colon and part.isdecimal():
        return _cluster(f"{name}:{ranks}")
    if times and count.isdecimal() and int(count) == cluster.ranks:
        return _cluster(f"{ranks}x{rest}")
    if times and count.isdecimal():
        return _cluster(f"{ceil_div(int(count) * ranks, cluster.ranks)}x{rest}")
    if ranks < cluster.ranks:
        return _cluster(f"{cluster.text}:{ranks}")
    return _cluster(f"{ceil_div(ranks, cluster.ranks)}x{cluster.text}")


def _cluster(text: str) -> Cluster | None:
    try:
        return catalog.cluster(text)
    except ForetellError:
        return None
