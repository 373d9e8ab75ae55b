# pyright: basic
"""What layers in shares need from the other ranks of their axis, forward and backward: each is the other's gradient.

Shares are those of `torch.chunk`: equal ones, and where a size does not divide, the last ranks have less.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

from foretell.runtime import waiting


@waiting.speaks
def gathered(share: torch.Tensor, dim: int, group: dist.ProcessGroup, size: int = 0) -> torch.Tensor:
    """The shares of all ranks, one behind the other along a dim; `size` is the whole, where shares may differ."""
    ranks, own = dist.get_world_size(group), share.shape[dim]
    most = -(-size // ranks) if size else own
    padded = _padded(share, dim, most).contiguous()
    whole = share.new_empty(ranks * padded.numel())
    with waiting.along(group):
        dist.all_gather_into_tensor(whole, padded.flatten(), group=group)
    found = torch.cat(whole.view(ranks, *padded.shape).unbind(), dim)
    # no view: layers after it may change it in place
    return found.narrow(dim, 0, size).clone() if size and size < found.shape[dim] else found


def _padded(share: torch.Tensor, dim: int, most: int) -> torch.Tensor:
    missing = most - share.shape[dim]
    return F.pad(share, (*(0, 0) * (share.dim() - 1 - dim % share.dim()), 0, missing)) if missing else share


def own(whole: torch.Tensor, dim: int, group: dist.ProcessGroup) -> torch.Tensor:
    """This rank's share along a dim."""
    return whole.chunk(dist.get_world_size(group), dim)[dist.get_rank(group)].contiguous()


@waiting.speaks
def summed(summand: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """The sum of what ranks have, on all of them."""
    total = summand.clone(memory_format=torch.contiguous_format)
    with waiting.along(group):
        dist.all_reduce(total, group=group)
    return total


@waiting.speaks
def scattered(summand: torch.Tensor, dim: int, group: dist.ProcessGroup) -> torch.Tensor:
    """This rank's equal share of the sum of what ranks have."""
    ranks = dist.get_world_size(group)
    shares = torch.stack(summand.chunk(ranks, dim))
    total = torch.empty_like(shares[0])
    with waiting.along(group):
        dist.reduce_scatter_tensor(total.view(-1), shares.view(-1), group=group)
    return total


class Copied(torch.autograd.Function):
    """What every rank has; its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return summed(gradient, ctx.group), None


class Summed(torch.autograd.Function):
    """The sum of what ranks have, which all of them go on with alike."""

    @staticmethod
    def forward(ctx: Any, summand: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        return summed(summand, group)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


class Gathered(torch.autograd.Function):
    """The whole of shares that ranks go on with alike; a share's gradient is the share of the whole's."""

    @staticmethod
    def forward(ctx: Any, share: torch.Tensor, dim: int, group: dist.ProcessGroup, size: int = 0) -> torch.Tensor:
        ctx.dim, ctx.group = dim, group
        return gathered(share, dim, group, size)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        return own(gradient, ctx.dim, ctx.group), None, None, None


class OwnShare(torch.autograd.Function):
    """This rank's share of what every rank has; the whole's gradient is that of all shares."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, dim: int, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.dim, ctx.group, ctx.size = dim, group, x.shape[dim]
        return own(x, dim, group)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return gathered(gradient, ctx.dim, ctx.group, ctx.size), None, None


class Collected(torch.autograd.Function):
    """The whole of shares, of which ranks make different things; a share's gradient is its share of their sum."""

    @staticmethod
    def forward(ctx: Any, share: torch.Tensor, dim: int, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.dim, ctx.group = dim, group
        return gathered(share, dim, group)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return scattered(gradient, ctx.dim, ctx.group), None, None


class Scattered(torch.autograd.Function):
    """This rank's share of the sum of what ranks have; the gradient of a summand is that of all shares."""

    @staticmethod
    def forward(ctx: Any, summand: torch.Tensor, dim: int, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.dim, ctx.group = dim, group
        return scattered(summand, dim, group)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return gathered(gradient, ctx.dim, ctx.group), None, None


class Swapped(torch.autograd.Function):
    """Shares of one dim for shares of another: all-to-all, and back again for the gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, split: int, join: int, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.split, ctx.join, ctx.group = split, join, group
        return swapped(x, split, join, group)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        return swapped(gradient, ctx.join, ctx.split, ctx.group), None, None, None


@waiting.speaks
def swapped(x: torch.Tensor, split: int, join: int, group: dist.ProcessGroup) -> torch.Tensor:
    """Give every rank its share along `split`, and put together what comes along `join`."""
    given = torch.stack(x.chunk(dist.get_world_size(group), split))
    taken = torch.empty_like(given)
    with waiting.along(group):
        dist.all_to_all_single(taken, given, group=group)
    return torch.cat(taken.unbind(), join)


class Sent(torch.autograd.Function):
    """Rows go to other ranks, so many to each; the gradients of those that came go back."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, to: list[int], of: list[int], group: dist.ProcessGroup) -> torch.Tensor:
        ctx.to, ctx.of, ctx.group = to, of, group
        return sent(rows, to, of, group)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        return sent(gradient, ctx.of, ctx.to, ctx.group), None, None, None


@waiting.speaks
def sent(rows: torch.Tensor, to: list[int], of: list[int], group: dist.ProcessGroup) -> torch.Tensor:
    """What other ranks have for this one: `to` says how many rows go to each, `of` how many come from each."""
    taken = rows.new_empty((sum(of), *rows.shape[1:]))
    with waiting.along(group):
        dist.all_to_all_single(taken, rows.contiguous(), of, to, group=group)
    return taken
