"""Changes of a plan that might make it fit, the smallest saving of each kind first. Nobody predicted them yet.

A proposal is parts of a plan, and not a plan: whether there is one (it may have more ranks than anybody has) is found
where it is tried, so that no proposal can fail before the next one is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from foretell.errors import ForetellError
from foretell.hardware import catalog, members
from foretell.hardware.cluster import Cluster
from foretell.plan.plan import Plan, axis_text, policy_text
from foretell.plan.policies.base import Base
from foretell.plan.policies.lora import Lora
from foretell.plan.policies.microbatches import Microbatches
from foretell.plan.policies.offload import Offload
from foretell.plan.policies.precision import Precision
from foretell.plan.policies.recompute import Recompute
from foretell.plan.policy import Policy
from foretell.plan.recomputation import recomputations
from foretell.plan.repair import divisors
from foretell.plan.strategies.context import Context
from foretell.plan.strategies.data import Data
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.strategies.tensor import Tensor
from foretell.plan.strategy import Strategy
from foretell.plan.syntax import MOST
from foretell.units import ceil_div

SHORTEST: Final = 512
"""Tokens below which no shorter sequence is proposed."""

GROWTH: Final = (2, 4, 8, 16, 32, 64)
"""How many times as many ranks are proposed at most."""

LARGEST: Final = 131_072
"""Ranks above which no larger cluster is proposed: the largest that are being built have about as many."""

LORA, NF4 = Lora(rank=16), Base(form="nf4")
"""The adapters that are proposed: what people usually begin with."""

PASSES: Final = "passes"
"""The group of changes that are nothing but other numbers of micro-batches."""


class Proposal(NamedTuple):
    """A change that nobody predicted yet. Of several for one group the first that fits is enough."""

    what: str
    group: str
    axes: tuple[Strategy, ...]
    policies: tuple[Policy, ...]
    cluster: Cluster | None = None
    seq: int = 0

    def plan(self) -> Plan | None:
        """The plan that is proposed, where there is one."""
        try:
            return Plan(self.axes, self.policies)
        except ForetellError:
            return None


def _proposal(what: str, group: str, plan: Plan, axes: tuple[Strategy, ...] | None = None, **more: Any) -> Proposal:
    return Proposal(what, group, plan.axes if axes is None else axes, plan.policies, **more)


def _with_policy(what: str, group: str, plan: Plan, policy: Policy) -> Proposal:
    others = tuple(other for other in plan.policies if other.word != policy.word)
    return Proposal(what, group, plan.axes, (*others, policy))


# of the plan


def smaller_passes(plan: Plan, microbatches: int, micro: int) -> Iterator[Proposal]:
    """The same samples in more micro-batches."""
    for size in divisors(micro)[1:]:
        count = microbatches * micro // size
        if count <= MOST:
            yield _with_policy(f"{count} micro-batches of {size}", PASSES, plan, Microbatches(count=count))


def policies(plan: Plan) -> Iterator[Proposal]:
    """More that runs again, and optimizer states on the host."""
    order = [name for name, rule in recomputations().items() if rule.searched and rule.together(2) <= 1]
    now = plan.policy(Recompute).option
    for word in order[order.index(now) + 1 :] if now in order else ():  # a layer at a time, or less
        yield _with_policy(f"+recompute:{word}", "recompute", plan, Recompute(granularity=word))
    offload = plan.policy(Offload)
    if not offload.optimizer:
        more = Offload(moved=("optimizer", *offload.moved))  # in the order of the plan's grammar
        yield _with_policy("+offload:optimizer", "offload", plan, more)


def storages(plan: Plan) -> Iterator[Proposal]:
    """More in shares among data and context ranks."""
    data = plan.axis(Data)
    if data is None or (data.world == 1 and plan.axis(Context) is None):
        return
    order = ("replicated", "zero1", "zero2", "zero3")
    for word in order[order.index(data.storage) + 1 :]:
        axes = _exchanged(plan, data, msgspec.structs.replace(data, storage=word))
        yield _proposal(f"{word} instead of {data.storage}", "storage", plan, axes)


def axes(plan: Plan) -> Iterator[Proposal]:
    """Ranks of the data axis that become tensor or pipeline ranks."""
    data = plan.axis(Data)
    if data is None or data.shard:
        return
    for factor in (n for n in (2, 4, 8) if data.ranks % n == 0):
        rest = msgspec.structs.replace(data, ranks=data.ranks // factor)
        narrower = _exchanged(plan, data, rest)
        for axis in _wider(plan, factor):
            left = f" beside {rest.word}{rest.ranks}" if rest.ranks > 1 else ""
            yield _proposal(f"{axis.word}{axis.ranks}{left}", axis.word, plan, _joined(narrower, axis))


def _wider(plan: Plan, factor: int) -> Iterator[Tensor | Pipeline]:
    tensor, pipeline = plan.axis(Tensor), plan.axis(Pipeline)
    yield msgspec.structs.replace(tensor, ranks=tensor.ranks * factor) if tensor else Tensor(ranks=factor)
    yield msgspec.structs.replace(pipeline, ranks=pipeline.ranks * factor) if pipeline else Pipeline(ranks=factor)


def _joined(axes: tuple[Strategy, ...], axis: Tensor | Pipeline) -> tuple[Strategy, ...]:
    """Axes with this one in its usual place: pipelines outermost, tensors innermost."""
    others = tuple(one for one in axes if one.word != axis.word)
    return (axis, *others) if isinstance(axis, Pipeline) else (*others, axis)


def _exchanged(plan: Plan, old: Data, new: Data) -> tuple[Strategy, ...]:
    """Without axes of one rank; one data rank says how those of a sequence store weights."""
    stored = plan.axis(Context) is not None and new.storage != "replicated"
    axes = tuple(new if axis is old else axis for axis in plan.axes)
    return tuple(axis for axis in axes if axis.world > 1 or (axis is new and stored))


# of what surrounds it


def shorter(plan: Plan, length: int) -> Iterator[Proposal]:
    """Sequences of half the length, and half of that."""
    length //= 2
    while length >= SHORTEST:
        yield _proposal(f"sequences of {length}", "sequence", plan, seq=length)
        length //= 2


def adapters(plan: Plan, length: int, nodes: int) -> Iterator[Proposal]:
    """Adapters instead of all weights, then beside weights in 4 bits, with shorter sequences where those are not
    enough: for a few devices."""
    if nodes > 1 or not length or plan.policy(Lora).rank:
        return
    for policies, group in (((LORA,), "adapters"), ((LORA, NF4), "adapters in 4 bits")):
        what = " ".join(map(policy_text, policies))
        trained = Proposal(what, group, plan.axes, (*plan.policies, *policies))
        yield trained
        yield from (trained._replace(what=f"{what}, {one.what}", seq=one.seq) for one in shorter(plan, length))


def larger_devices(plan: Plan, cluster: Cluster, kernels: str) -> Iterator[Proposal]:
    """The same plan on devices with more memory that are as fast, the smallest first."""
    now = cluster.device
    others = [members.device(name) for name in members.names("devices")]
    fitting = [
        one
        for one in others
        if one.memory_bytes > now.memory_bytes
        and one.supports(kernels)
        and one.matrix_rate(kernels) >= now.matrix_rate(kernels)
    ]
    for device in sorted(fitting, key=lambda one: one.memory_bytes):
        there = _cluster(f"{plan.ranks}x{device.name}")
        if there:
            yield _proposal(f"on {there.text}", "device", plan, cluster=there)


def more_ranks(plan: Plan, cluster: Cluster) -> Iterator[Proposal]:
    """More of the same nodes: as more data ranks that share the weights, beside what other axes there are."""
    for factor in GROWTH:
        there = grown(cluster, plan.ranks * factor) if plan.ranks * factor <= LARGEST else None
        if there is None:
            continue
        for data, axes in _spread(plan, factor):
            yield _proposal(f"on {there.text}, {axis_text(data)}", "ranks", plan, axes, cluster=there)


def idle_ranks(plan: Plan, ranks: int) -> Iterator[Proposal]:
    """Ranks that the cluster has and the plan leaves idle, as data ranks."""
    factor = ranks // plan.ranks
    if factor > 1:
        yield from (_proposal(axis_text(data), "ranks", plan, axes) for data, axes in _spread(plan, factor))


def _spread(plan: Plan, factor: int) -> Iterator[tuple[Data, tuple[Strategy, ...]]]:
    """The plan's axes with more data ranks: stored as they are, and with weights in shares."""
    data = plan.axis(Data)
    if data is None or data.world == 1:
        others = tuple(axis for axis in plan.axes if axis.world > 1)
        at = 1 if others and isinstance(others[0], Pipeline) else 0
        for storage in ("zero1", "zero3"):
            new = Data(ranks=factor, storage=storage)
            yield new, (*others[:at], new, *others[at:])
        return
    for storage in dict.fromkeys((data.storage, "zero3")):
        more = msgspec.structs.replace(data, ranks=data.ranks * factor, storage=storage)
        yield more, _exchanged(plan, data, more)


def kernels_of(plan: Plan) -> str:
    """The kind of products that a plan computes."""
    return plan.policy(Precision).format.kernels


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
