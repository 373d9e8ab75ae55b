# pyright: basic
"""Data parallelism: DistributedDataParallel, its optimizer in shares (ZeRO-1), or FSDP2 (ZeRO-2, ZeRO-3, hybrid).

Every rank takes an equal share of the samples and of each micro-batch, so the mean of the ranks' gradients is
the gradient of the mean. Where shares differ, the loss of each rank counts by its share.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor

from foretell.model import zoo
from foretell.modules._experts import Experts
from foretell.plan.dispatch import USUAL
from foretell.plan.job import own_counts
from foretell.plan.plan import axis_text
from foretell.plan.policies.offload import Offload
from foretell.plan.repair import with_fields
from foretell.plan.setting import Setting
from foretell.plan.strategies.data import Data
from foretell.runtime.appliers._experts import divide
from foretell.runtime.appliers._replicas import joined, replicate
from foretell.runtime.appliers._sharing import gathered
from foretell.runtime.subject import Subject, TorchOptimizer, cut
from foretell.runtime.tasks import Batch

ORDER = 40


AXES = ("dp", "shard", "ep")
"""Axes that share the batch."""


def refusals(part: Data, setting: Setting) -> Iterator[tuple[str, str]]:
    """Read from the name of the model: its module is not there yet."""
    name = setting.graph.name
    fields: Any = zoo.parse(name)[1] if name.partition(":")[0] in zoo.names() else None
    if part.experts > 1 and getattr(fields, "expert_bias", False):
        yield f"ep{part.experts}: experts with biases do not run in shares yet", "dp, or pp"
    way = part.dispatch or setting.trainer.experts.dispatch
    if part.experts > 1 and way != USUAL:
        said = axis_text(part) if part.dispatch else f"{axis_text(part)} of {setting.trainer.name}"
        yield f"{said}: rows do not go to experts by {way} yet", axis_text(with_fields(part, dispatch=USUAL))
    if part.shares:
        yield from _unequal(part, setting)


def _unequal(part: Data, setting: Setting) -> Iterator[tuple[str, str]]:
    """Shares that the batch does not have, and axes beside which nobody has one of his own."""
    equal = axis_text(with_fields(part, shares=()))
    beside = [axis.word for axis in setting.plan.axes if axis is not part and axis.world > 1]
    if beside or part.experts > 1:
        yield f"shares of samples beside {beside[0] if beside else 'ep'} do not run yet", equal
    counts = own_counts(part, setting.plan.microbatches, setting.job.batch)
    if any(samples % 1 or count % 1 or samples % count for samples, count in counts):
        whole = sum(part.by_rank) * setting.plan.microbatches
        why = f"{setting.job.batch} samples in {setting.plan.microbatches} micro-batches have no shares of these sizes"
        yield why, f"{equal}, or --batch {whole}"


def apply(part: Data, subject: Subject) -> None:
    names = [name for name in AXES if name in subject.mesh]
    if part.shares:
        _share_unevenly(part, subject, names)
    for name in () if part.shares else names:
        subject.shares.append(functools.partial(share_samples, subject, name))
    if part.experts > 1:
        _divide(part, subject)
    if part.storage in ("replicated", "zero1"):
        replicate(subject, names)
        if part.storage == "zero1":
            subject.optimizer = functools.partial(_in_shares, subject, names)
    else:
        _shard(subject, names, reshard=part.storage == "zero3")
    subject.averaged = True


def share_samples(subject: Subject, name: str, batch: Batch) -> Batch:
    """This rank's equal share of a batch along an axis; one that is alone is given no more than its own."""
    return batch if subject.rehearsed else cut(batch, subject.mesh.place(name), subject.mesh.ranks(name))


def _share_unevenly(part: Data, subject: Subject, names: list[str]) -> None:
    """Have this rank take its own share of samples, in micro-batches of its own number."""
    at = 0
    for name in names:
        at = at * subject.mesh.ranks(name) + subject.mesh.place(name)
    shares, counts = part.by_rank, own_counts(part, subject.setting.plan.microbatches, subject.setting.job.batch)
    subject.weight = shares[at] * len(shares) / sum(shares)
    subject.count = int(counts[at][1])
    first = round(sum(samples for samples, _ in counts[:at]))
    rows = slice(first, first + round(counts[at][0]))
    subject.shares.append(lambda batch: Batch(tuple(one[rows] for one in batch.inputs), batch.target[rows]))


# states in shares


def _in_shares(subject: Subject, names: list[str], rule: TorchOptimizer, own: list[nn.Parameter]) -> Several:
    """Each rank updates some of the weights and sends them to the others that have them: experts that are divided lie
    on fewer ranks than the rest."""
    groups: dict[tuple[str, ...], list[nn.Parameter]] = {}
    for weight in own:
        cut = subject.divided.get(weight, ())
        groups.setdefault(tuple(name for name in _sharing(subject, names) if name not in cut), []).append(weight)
    return Several([_updated(subject, axes, rule, weights) for axes, weights in groups.items()])


class Several:
    """Optimizers of different weights as one."""

    def __init__(self, each: list[torch.optim.Optimizer]) -> None:
        self.each = each

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return [group for one in self.each for group in one.param_groups]

    def step(self) -> None:
        for one in self.each:
            one.step()

    def zero_grad(self) -> None:
        for one in self.each:
            one.zero_grad()


def _updated(
    subject: Subject, axes: tuple[str, ...], rule: TorchOptimizer, weights: list[nn.Parameter]
) -> torch.optim.Optimizer:
    if not axes:
        return rule.over(weights)
    group = joined(subject, axes)
    return ZeroRedundancyOptimizer(weights, optimizer_class=rule.kind, process_group=group, **rule.arguments)


def _sharing(subject: Subject, names: list[str]) -> list[str]:
    """The axes along which states, gradients or weights lie in shares: of hybrid sharding's two the second. Ranks that
    share a sequence belong to them, and those that divide experts."""
    return [name for name in (*names, *subject.alike) if name not in _replicas(names)]


def _replicas(names: list[str]) -> list[str]:
    return ["dp"] if "shard" in names and "dp" in names else []


# experts


def _divide(part: Data, subject: Subject) -> None:
    """Leave this rank some of the experts; over the tensor ranks too, where each of them has tokens of its own."""
    folded = part.experts > (part.shard or part.ranks)
    group = joined(subject, tuple(name for name in ("ep", "tp") if name == "ep" or folded))
    shares: set[str] = set()
    for own in subject.parts:
        for path, module in own.named_modules():
            if isinstance(module, Experts):
                divide(module, group, subject.mesh.ranks("ep"), subject.fullest if subject.rehearsed else 0.0)
                shares |= {f"{path}.{name}" for name, _ in module.named_parameters()}
                subject.divided |= dict.fromkeys(module.parameters(), ("ep",))

    def whole(name: str, share: torch.Tensor) -> tuple[str, torch.Tensor]:
        return name, gathered(share, 0, group) if name in shares else share

    subject.wholes.append(whole)


# weights in shares


class Unlike(NamedTuple):
    """How a weight is not as most: axes along which it is averaged beside those that share the batch (it saw rows of
    images), and axes that cut it already (it is one of the experts)."""

    summands: tuple[str, ...] = ()
    divided: tuple[str, ...] = ()


def _unlike(subject: Subject, weight: nn.Parameter) -> Unlike:
    return Unlike(subject.summands.get(weight, ()), subject.divided.get(weight, ()))


def _shard(subject: Subject, names: list[str], reshard: bool) -> None:
    """Layer by layer, and what is in none with the root."""
    meshes, more = _meshes(subject, names), _from_host(subject)
    for part in subject.parts:
        whole = {weight for weight in part.parameters() if meshes[_unlike(subject, weight)] is None}
        for module, unlike in list(_units(subject, part)):
            keep = None if reshard and module is part else reshard  # None: a root keeps its own
            if meshes[unlike] is not None:
                fully_shard(module, mesh=meshes[unlike], reshard_after_forward=keep, ignored_params=whole, **more)
    if not reshard:
        subject.quiet = _kept
    subject.wholes.append(_gathered)


def _from_host(subject: Subject) -> dict[str, Any]:
    """What FSDP2 is told where shares lie in host memory. On a processor that is where they are."""
    if not subject.setting.plan.policy(Offload).weights or subject.device.type == "cpu":
        return {}
    for part in subject.parts:
        for weight in part.parameters():
            weight.data = weight.data.to("cpu")
    return {"offload_policy": CPUOffloadPolicy()}


def _units(subject: Subject, part: nn.Module) -> Iterator[tuple[nn.Module, Unlike]]:
    """Modules whose weights are gathered together, inner ones first, and how these are not as most."""
    known: set[nn.Parameter] = set()
    for unit in (*(layer for _, layer in subject.layers(part)), part):
        own = {weight: _unlike(subject, weight) for weight in unit.parameters() if weight not in known}
        usual = Unlike() if not own or Unlike() in own.values() else next(iter(own.values()))
        yield from _apart(unit, own, usual)
        if own or unit is part:
            yield unit, usual
        known |= set(own)


def _apart(module: nn.Module, own: dict[nn.Parameter, Unlike], usual: Unlike) -> Iterator[tuple[nn.Module, Unlike]]:
    """The largest modules inside one whose weights are all unlike the others."""
    for child in module.children():
        kinds = {own[weight] for weight in child.parameters() if weight in own}
        if len(kinds) == 1 and usual not in kinds:
            yield child, kinds.pop()
        elif kinds - {usual}:
            yield from _apart(child, own, usual)


def _meshes(subject: Subject, names: list[str]) -> dict[Unlike, DeviceMesh | None]:
    """Where weights of every kind lie in shares, and along which axes shares are alike; none where a weight is whole.

    All ranks make all of them, in one order, whatever weights they have.
    """
    replicas, shares = _replicas(names), _sharing(subject, names)
    found: dict[Unlike, DeviceMesh | None] = {}
    for summands in sorted({(), *subject.summands.values()}):
        for divided in [(), ("ep",)] if "ep" in names else [()]:
            left = [name for name in shares if name not in divided]
            found[Unlike(summands, divided)] = _mesh(subject, [*replicas, *summands], left)
    return found


def _mesh(subject: Subject, replicas: list[str], shares: list[str]) -> DeviceMesh | None:
    if replicas and shares:
        return subject.mesh.arranged(replicas, shares)
    axes = shares or replicas
    if len(axes) > 1:
        joined(subject, tuple(axes))
    return subject.mesh.along("_".join(axes)) if axes else None


@contextmanager
def _kept(part: nn.Module) -> Iterator[None]:
    """ZeRO-2 gathers weights once a step: they stay whole until the last micro-batch, while gradients are summed."""
    assert isinstance(part, FSDPModule)
    part.set_reshard_after_backward(False)
    yield
    part.set_reshard_after_backward(True)


def _gathered(name: str, share: torch.Tensor) -> tuple[str, torch.Tensor]:
    return name, share.full_tensor() if isinstance(share, DTensor) else share
