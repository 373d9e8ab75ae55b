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
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor

from foretell.plan.setting import Setting
from foretell.plan.strategies.data import Data
from foretell.runtime.appliers._replicas import replicate
from foretell.runtime.subject import Rule, Subject, cut
from foretell.runtime.tasks import Batch

ORDER = 40


def refusals(part: Data, setting: Setting) -> Iterator[tuple[str, str]]:
    if part.experts > 1:
        yield f"ep{part.experts}: experts are not divided yet", "no ep"


def apply(part: Data, subject: Subject) -> None:
    names = [name for name in ("dp", "shard") if name in subject.mesh]
    for name in names:
        subject.shares.append(functools.partial(_share, subject, name))
    if part.storage in ("replicated", "zero1"):
        replicate(subject, names)
        if part.storage == "zero1":
            subject.optimizer = functools.partial(_in_shares, subject.mesh.group(names[-1]))
    else:
        _shard(subject, names, reshard=part.storage == "zero3")


def _share(subject: Subject, name: str, batch: Batch) -> Batch:
    return cut(batch, subject.mesh.place(name), subject.mesh.ranks(name))


def _in_shares(group: dist.ProcessGroup, rule: Rule, own: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Each rank updates some of the weights and sends them to the others."""
    return ZeroRedundancyOptimizer(own, optimizer_class=rule.kind, process_group=group, **rule.arguments)


# weights in shares


def _shard(subject: Subject, names: list[str], reshard: bool) -> None:
    """Layer by layer, and what is in none with the root. Over two axes weights lie in shares along the second."""
    mesh = subject.mesh.along(*names)
    for part in subject.parts:
        for _, layer in subject.layers(part):
            if any(True for _ in layer.parameters()):
                fully_shard(layer, mesh=mesh, reshard_after_forward=reshard)
        fully_shard(part, mesh=mesh, reshard_after_forward=None if reshard else False)  # None: a root keeps its own
    if not reshard:
        subject.quiet = _kept
    subject.wholes.append(_gathered)


@contextmanager
def _kept(part: nn.Module) -> Iterator[None]:
    """ZeRO-2 gathers weights once a step: they stay whole until the last micro-batch, while gradients are summed."""
    assert isinstance(part, FSDPModule)
    part.set_reshard_after_backward(False)
    yield
    part.set_reshard_after_backward(True)


def _gathered(name: str, share: torch.Tensor) -> tuple[str, torch.Tensor]:
    return name, share.full_tensor() if isinstance(share, DTensor) else share
