# pyright: basic
"""Data parallelism: DistributedDataParallel, its optimizer in shares (ZeRO-1), or FSDP2 (ZeRO-2, ZeRO-3, hybrid).

Every rank takes an equal share of the samples and of each micro-batch, so the mean of the ranks' gradients is
the gradient of the mean.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor

from foretell.modules._experts import Experts
from foretell.plan.setting import Setting
from foretell.plan.strategies.data import Data
from foretell.runtime.appliers._experts import divide
from foretell.runtime.appliers._replicas import joined, replicate
from foretell.runtime.appliers._sharing import gathered
from foretell.runtime.subject import Rule, Subject, cut
from foretell.runtime.tasks import Batch

ORDER = 40


AXES = ("dp", "shard", "ep")
"""Axes that share the batch."""


def refusals(part: Data, setting: Setting) -> Iterator[tuple[str, str]]:
    said = f"dp{part.ranks}:{'' if part.storage == 'replicated' else part.storage + ','}ep{part.experts}"
    if part.experts > 1 and part.storage in ("zero1", "zero2"):
        yield f"{said}: divided experts beside {part.storage} do not run yet", "dp:ep, or dp:zero3,ep"
    tensor = setting.plan.axis("tp")
    if part.experts > 1 and tensor is not None and tensor.ranks > 1 and part.expert_tensor != 1:
        yield f"{said} beside tp{tensor.ranks}: columns of divided experts do not run yet", f"{said},etp1"


def apply(part: Data, subject: Subject) -> None:
    names = [name for name in AXES if name in subject.mesh]
    for name in names:
        subject.shares.append(functools.partial(share_samples, subject, name))
    if part.experts > 1:
        _divide(part, subject)
    if part.storage in ("replicated", "zero1"):
        replicate(subject, names)
        if part.storage == "zero1":
            subject.optimizer = functools.partial(_in_shares, joined(subject, (names[-1], *subject.alike)))
    else:
        _shard(subject, names, reshard=part.storage == "zero3")
    subject.averaged = True


def share_samples(subject: Subject, name: str, batch: Batch) -> Batch:
    """This rank's equal share of a batch along an axis."""
    return cut(batch, subject.mesh.place(name), subject.mesh.ranks(name))


def _in_shares(group: dist.ProcessGroup, rule: Rule, own: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Each rank updates some of the weights and sends them to the others."""
    return ZeroRedundancyOptimizer(own, optimizer_class=rule.kind, process_group=group, **rule.arguments)


# experts


def _divide(part: Data, subject: Subject) -> None:
    """Leave this rank some of the experts; over the tensor ranks too, where each of them has tokens of its own."""
    folded = part.experts > (part.shard or part.ranks)
    group = joined(subject, tuple(name for name in ("ep", "tp") if name == "ep" or folded))
    shares: set[str] = set()
    for own in subject.parts:
        for path, module in own.named_modules():
            if isinstance(module, Experts):
                divide(module, group, subject.mesh.ranks("ep"))
                shares |= {f"{path}.{name}" for name, _ in module.named_parameters()}
                subject.divided |= dict.fromkeys(module.parameters(), ("ep",))

    def whole(name: str, share: torch.Tensor) -> tuple[str, torch.Tensor]:
        return name, gathered(share, 0, group) if name in shares else share

    subject.wholes.append(whole)


# weights in shares


def _shard(subject: Subject, names: list[str], reshard: bool) -> None:
    """Layer by layer, and what is in none with the root. Over two axes weights lie in shares along the second.

    Experts that are divided lie in shares along the axes that are left, if any are.
    """
    mesh, rest = _meshes(subject, names)
    whole = set(subject.divided) if rest is None else set[nn.Parameter]()
    for part in subject.parts:
        for _, layer in subject.layers(part):
            if subject.divided and rest is not None:
                for experts in (module for module in layer.modules() if isinstance(module, Experts)):
                    fully_shard(experts, mesh=rest, reshard_after_forward=reshard)
            if any(True for _ in layer.parameters()):
                fully_shard(layer, mesh=mesh, reshard_after_forward=reshard, ignored_params=whole)
        # None: a root keeps its own
        fully_shard(part, mesh=mesh, reshard_after_forward=None if reshard else False, ignored_params=whole)
    if not reshard:
        subject.quiet = _kept
    subject.wholes.append(_gathered)


def _meshes(subject: Subject, names: list[str]) -> tuple[DeviceMesh | None, DeviceMesh | None]:
    """Where weights lie in shares, and where those do that are divided along `ep` already.

    Of hybrid sharding's two axes the second is the one of shares; ranks that share a sequence belong to it, and those
    that divide experts.
    """
    first = ["dp"] if "shard" in names and "dp" in names else []
    return (
        _flat(subject, first, [name for name in (*names, *subject.alike) if name not in first]),
        _flat(subject, first, [name for name in (*names, *subject.alike) if name not in (*first, "ep")]),
    )


def _flat(subject: Subject, first: list[str], others: list[str]) -> DeviceMesh | None:
    """A mesh of some axes, the last of them joined to one."""
    if len(others) > 1:
        joined(subject, tuple(others))
        others = ["_".join(others)]
    found = [*first, *others]
    return subject.mesh.along(*found) if found else None


@contextmanager
def _kept(part: nn.Module) -> Iterator[None]:
    """ZeRO-2 gathers weights once a step: they stay whole until the last micro-batch, while gradients are summed."""
    assert isinstance(part, FSDPModule)
    part.set_reshard_after_backward(False)
    yield
    part.set_reshard_after_backward(True)


def _gathered(name: str, share: torch.Tensor) -> tuple[str, torch.Tensor]:
    return name, share.full_tensor() if isinstance(share, DTensor) else share
