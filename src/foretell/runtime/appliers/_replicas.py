# pyright: basic
"""Weights that several ranks have: DistributedDataParallel averages their gradients, over the ranks that saw others.

Most weights are averaged along the axes that share the batch. A weight that saw shares of samples (rows of an image)
is averaged along that axis too, as one group, and experts are not along the axis that divides them; each group is a
wrapper of its own that leaves the others' weights alone.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import _DEFAULT_FIRST_BUCKET_BYTES as FIRST
from torch._C._distributed_c10d import _compute_bucket_assignment_by_size
from torch.nn.parallel import DistributedDataParallel

from foretell.plan.facts import facts
from foretell.plan.policies.bucket import Bucket
from foretell.runtime import waiting
from foretell.runtime.subject import Subject
from foretell.runtime.waiting import LastGradient

MIB = 1 << 20

OWN_BUFFERS = next(
    name
    for name in ("forward_sync_buffers", "broadcast_buffers")
    if name in inspect.signature(DistributedDataParallel).parameters
)
"""What torch calls it, by its version, that a forward pass begins with the buffers of rank 0."""


def replicate(subject: Subject, names: list[str]) -> None:
    """Average gradients along these axes, and of some weights along more."""
    size = subject.setting.plan.policy(Bucket).size
    cap = size / MIB if size else None  # torch's own: a small first bucket, then 25 MiB
    over = sorted({axes_of(subject, weight, names) for weight in subject.weights()} - {()})
    subject.averaged = True
    if not over or not facts(subject.setting.graph).trains:
        return
    if subject.later:
        known: set[nn.Parameter] = set()  # that an earlier part has too
        subject.settles += [_Later(subject, part, names, axes, known).settle for axes in over for part in subject.parts]
        return
    if subject.device.type == "cpu":
        subject.summed += [LastGradient(part, over[-1][-1]).passed for part in subject.parts]
    subject.wholes.append(functools.partial(_unwrapped, {name for part in subject.parts for name in _names(part)}))
    for axes in over:
        subject.parts = [_replica(subject, part, names, axes, cap) for part in subject.parts]
    subject.quiet = _quiet


def axes_of(subject: Subject, weight: nn.Parameter, names: list[str]) -> tuple[str, ...]:
    """The axes along which the gradients of a weight are averaged."""
    cut = subject.divided.get(weight, ())
    return tuple(name for name in (*names, *subject.alike, *subject.summands.get(weight, ())) if name not in cut)


def _names(part: nn.Module) -> list[str]:
    return [name for name, _ in part.named_parameters()]


def _unwrapped(names: set[str], name: str, share: torch.Tensor) -> tuple[str, torch.Tensor]:
    """The name that a weight had before it was wrapped, perhaps more than once."""
    while name not in names:
        name = name.removeprefix("module.")
    return name, share


def _replica(
    subject: Subject, part: nn.Module, names: list[str], axes: tuple[str, ...], cap: float | None
) -> nn.Module:
    """The part with the gradients of those weights averaged that belong to these axes."""
    weights = dict(part.named_parameters())
    others = [name for name, one in weights.items() if axes_of(subject, one, names) != axes]
    if len(others) == len(weights):
        return part
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(part, others)
    more: dict[str, Any] = {OWN_BUFFERS: False}
    return DistributedDataParallel(part, process_group=joined(subject, axes), bucket_cap_mb=cap, **more)


class _Later:
    """Gradients that are averaged when all passes are through, in the buckets that DistributedDataParallel makes."""

    def __init__(
        self, subject: Subject, part: nn.Module, names: list[str], axes: tuple[str, ...], known: set[nn.Parameter]
    ) -> None:
        self.part, self.group = part, joined(subject, axes)
        trained = ((name, weight) for name, weight in part.named_parameters() if weight.requires_grad)
        own = {name: weight for name, weight in trained if weight not in known}
        own = {name: weight for name, weight in own.items() if axes_of(subject, weight, names) == axes}
        known.update(own.values())
        paths, weights = list(own)[::-1], list[torch.Tensor](own.values())[::-1]
        size = subject.setting.plan.policy(Bucket).size
        bounds = [size] if size else [FIRST, 25 * MIB]
        found, _ = _compute_bucket_assignment_by_size(weights, bounds) if weights else ([], [])
        self.buckets = [[paths[at] for at in bucket] for bucket in found]  # by name: a dry run changes weights

    def settle(self) -> None:
        ranks = dist.get_world_size(self.group)
        weights = dict(self.part.named_parameters())
        for bucket in self.buckets:
            gradients = [one for one in (weights[name].grad for name in bucket) if one is not None]
            flat = torch.cat([gradient.flatten() for gradient in gradients]).div_(ranks)
            with waiting.along(self.group):
                dist.all_reduce(flat, group=self.group)
            for gradient, mean in zip(gradients, flat.split([one.numel() for one in gradients]), strict=True):
                gradient.copy_(mean.view_as(gradient))


def joined(subject: Subject, axes: tuple[str, ...]) -> dist.ProcessGroup:
    """One group over some axes."""
    along = subject.mesh.along(*axes)
    return (along._flatten("_".join(axes)) if len(axes) > 1 else along).get_group()


def wrappers(part: nn.Module) -> Iterator[DistributedDataParallel]:
    """Those around a part, the outermost first."""
    while isinstance(part, DistributedDataParallel):
        yield part
        part = part.module


def bucket_bytes(part: nn.Module) -> int:
    """Bytes of the buckets around a part: as much as the gradients that lie in them."""
    weights = (weight for wrapper in wrappers(part) for weight in wrapper._module_parameters)
    return sum(weight.numel() * weight.element_size() for weight in weights if weight.requires_grad)


def _quiet(part: nn.Module) -> AbstractContextManager[Any]:
    """While this holds nothing is averaged."""
    found = ExitStack()
    for wrapper in wrappers(part):
        found.enter_context(wrapper.no_sync())
    return found
