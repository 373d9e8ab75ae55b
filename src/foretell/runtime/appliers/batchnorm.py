# pyright: basic
"""Synchronised batch norm: the mean and variance of all ranks' samples, by one sum forward and one backward.

Torch's own (`nn.SyncBatchNorm`) refuses the CPU, and gathers where a sum will do.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from foretell.plan.policies.batchnorm import BatchNorm
from foretell.plan.setting import Setting
from foretell.plan.strategy import Strategy
from foretell.runtime import waiting
from foretell.runtime.appliers._beside_samples import borders
from foretell.runtime.appliers._replicas import joined
from foretell.runtime.subject import Subject

ORDER = 16
AXES = ("dp", "shard", "spatial", "spatial.0", "spatial.1", "spatial.2")
"""Along which ranks have different samples, or different rows of them, whatever the layer."""

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def refusals(part: BatchNorm, setting: Setting) -> Iterator[tuple[str, str]]:
    return iter(())


def apply(part: BatchNorm, subject: Subject) -> None:
    always = tuple(name for name in AXES if name in subject.mesh)
    partly = {
        axis.word: borders(subject.setting, axis.word).shared for axis in subject.setting.plan.axes if _by_weights(axis)
    }
    for own in subject.parts:
        for name, module in own.named_modules():
            if isinstance(module, NORMS):
                norm: Any = module
                axes = (*always, *(word for word, shared in partly.items() if word in subject.mesh and name in shared))
                if axes:  # else this rank has all samples
                    norm.forward = _Synchronised(norm, joined(subject, axes))


def _by_weights(axis: Strategy) -> bool:
    """Whether an axis divides the weights of some layers, and the samples of others."""
    return any(own.splitting.weighted and own.splitting.rest for own in axis.axes())


class _Synchronised:
    """The forward of a batch norm over all ranks of a group."""

    def __init__(self, module: Any, group: dist.ProcessGroup) -> None:
        self.module, self.group = module, group

    @functools.cached_property
    def ranks(self) -> int:
        return dist.get_world_size(self.group)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        module = self.module
        if not module.training:
            return type(module).forward(module, x)
        count = self._count(x)
        shape = (1, -1, *[1] * (x.dim() - 2))
        normal, mean, variance = _Normal.apply(x, module.eps, count, self.group)
        self._remember(mean, variance, count)
        if not module.affine:
            return normal
        return (normal * module.weight.view(shape) + module.bias.view(shape)).to(x.dtype)  # weights may be wider

    def _count(self, x: torch.Tensor) -> int:
        """Values of a channel on all ranks. Shares may differ by a row; sizes stay, so they are asked for once."""
        if x.shape not in self._counts:
            total = torch.tensor(float(x.numel() // x.shape[1]), dtype=torch.float64, device=x.device)
            dist.all_reduce(total, group=self.group)
            self._counts[x.shape] = int(total.item())
        return self._counts[x.shape]

    @functools.cached_property
    def _counts(self) -> dict[torch.Size, int]:
        return {}

    def _remember(self, mean: torch.Tensor, variance: torch.Tensor, count: int) -> None:
        """Running means for evaluation, as torch keeps them."""
        module = self.module
        if not module.track_running_stats:
            return
        with torch.no_grad():
            module.num_batches_tracked.add_(1)
            share = module.momentum if module.momentum is not None else 1.0 / float(module.num_batches_tracked)
            module.running_mean.lerp_(mean.to(module.running_mean.dtype), share)
            unbiased = variance * (count / max(1, count - 1))
            module.running_var.lerp_(unbiased.to(module.running_var.dtype), share)


class _Normal(torch.autograd.Function):
    """(x - mean) / deviation over all ranks (Ioffe and Szegedy 2015), with its mean and variance."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, eps: float, count: int, group: dist.ProcessGroup
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        dims, shape = _dims(x)
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        mean, square = _summed(wide, wide.square(), dims, group, count)
        variance = (square - mean.square()).clamp_min_(0)
        inverse = torch.rsqrt(variance + eps)
        normal = (wide - mean.view(shape)) * inverse.view(shape)
        ctx.save_for_backward(normal, inverse)
        ctx.count, ctx.group = count, group
        ctx.mark_non_differentiable(mean, variance)
        return normal.to(x.dtype), mean, variance

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, *_: Any) -> tuple[torch.Tensor, None, None, None]:
        normal, inverse = ctx.saved_tensors
        dims, shape = _dims(normal)
        wide = gradient.to(normal.dtype)
        mean, along = _summed(wide, wide * normal, dims, ctx.group, ctx.count)
        of_x = (wide - mean.view(shape) - normal * along.view(shape)) * inverse.view(shape)
        return of_x.to(gradient.dtype), None, None, None


def _dims(x: torch.Tensor) -> tuple[list[int], tuple[int, ...]]:
    """All dims but that of channels, and the shape of a number a channel."""
    return [dim for dim in range(x.dim()) if dim != 1], (1, -1, *[1] * (x.dim() - 2))


@waiting.speaks
def _summed(
    one: torch.Tensor, other: torch.Tensor, dims: list[int], group: dist.ProcessGroup, count: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The means of two tensors over all ranks, by one sum."""
    both = torch.stack([one.sum(dims), other.sum(dims)])
    dist.all_reduce(both, group=group)
    both /= count
    return both[0], both[1]
