# pyright: basic
"""What layers in shares need from the other ranks of their axis, forward and backward: each is the other's gradient."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist


def gathered(share: torch.Tensor, dim: int, group: dist.ProcessGroup) -> torch.Tensor:
    """Equal shares of all ranks, one behind the other along a dim."""
    ranks = dist.get_world_size(group)
    whole = share.new_empty(ranks * share.numel())
    dist.all_gather_into_tensor(whole, share.contiguous().flatten(), group=group)
    return torch.cat(whole.view(ranks, *share.shape).unbind(), dim)


def own(whole: torch.Tensor, dim: int, group: dist.ProcessGroup) -> torch.Tensor:
    """This rank's equal share along a dim."""
    return whole.chunk(dist.get_world_size(group), dim)[dist.get_rank(group)].contiguous()


def _summed(summand: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    total = summand.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=group)
    return total


class Copied(torch.autograd.Function):
    """What every rank has; its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _summed(gradient, ctx.group), None


class Gathered(torch.autograd.Function):
    """The whole of shares that ranks go on with alike; a share's gradient is the share of the whole's."""

    @staticmethod
    def forward(ctx: Any, share: torch.Tensor, dim: int, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.dim, ctx.group = dim, group
        return gathered(share, dim, group)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return own(gradient, ctx.dim, ctx.group), None, None


class Own(torch.autograd.Function):
    """This rank's share of what every rank has; the whole's gradient is that of all shares."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, dim: int, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.dim, ctx.group = dim, group
        return own(x, dim, group)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return gathered(gradient, ctx.dim, ctx.group), None, None


class Summed(torch.autograd.Function):
    """The sum of what ranks have, which all of them go on with alike."""

    @staticmethod
    def forward(ctx: Any, summand: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        return _summed(summand, group)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None
