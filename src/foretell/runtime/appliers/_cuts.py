# pyright: basic
"""Images in shares: which rows of which dims a rank has, and the ways out of shares.

Ranks go on alike from a way out, as if each had a loss of its own: gradients that flow back into shares count for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from foretell.runtime import waiting
from foretell.runtime.appliers._halo import DIM, RowRange, share


class Cuts(NamedTuple):
    """The dims that lie in shares, each with the ranks along it, and all ranks together, the last dim's fastest."""

    dims: tuple[tuple[int, dist.ProcessGroup], ...]
    all: dist.ProcessGroup

    def rows(self, sizes: Sequence[int], rank: int) -> list[RowRange]:
        """The share of one of all ranks, where the whole has these sizes along the dims."""
        found: list[RowRange] = []
        for size, (_, group) in zip(reversed(sizes), reversed(self.dims), strict=True):
            rank, place = divmod(rank, dist.get_world_size(group))
            found.append(share(size, place, dist.get_world_size(group)))
        return found[::-1]

    def sizes(self, shape: Sequence[int]) -> list[int]:
        return [shape[dim] for dim, _ in self.dims]

    def own(self, x: torch.Tensor) -> torch.Tensor:
        """This rank's share of a whole."""
        return taken(x, self, self.rows(self.sizes(x.shape), dist.get_rank(self.all)))


def taken(x: torch.Tensor, cuts: Cuts, rows: list[RowRange]) -> torch.Tensor:
    """Some rows of a whole."""
    for own, (dim, _) in zip(rows, cuts.dims, strict=True):
        x = x.narrow(dim, own.first, own.count)
    return x


class Mean(nn.Module):
    """The mean over the image, out of shares."""

    def __init__(self, dims: tuple[int, ...], keep: bool, count: int, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.dims, self.keep, self.count, self.group = dims, keep, count, group

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _Total.apply(x.sum(self.dims, keepdim=self.keep) / self.count, self.group)


class _Total(torch.autograd.Function):
    """A sum over ranks that all go on with alike, each as if its loss were one of many: gradients count for all."""

    @staticmethod
    def forward(ctx: Any, summand: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.ranks = dist.get_world_size(group)
        total = summand.contiguous().clone()
        with waiting.along(group):
            dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient * ctx.ranks, None


class WholeImage(nn.Module):
    """The whole of an image in shares."""

    def __init__(self, shape: torch.Size, cuts: Cuts) -> None:
        super().__init__()
        self.sizes, self.cuts = cuts.sizes(shape), cuts

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _GatheredRows.apply(x, self.sizes, self.cuts)


class _GatheredRows(torch.autograd.Function):
    """All rows of shares that may differ by one; gradients count for all ranks here too."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, sizes: list[int], cuts: Cuts) -> torch.Tensor:
        ctx.cuts, ctx.ranks = cuts, dist.get_world_size(cuts.all)
        return _gathered(x, sizes, cuts)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return ctx.cuts.own(gradient) * ctx.ranks, None, None


def _gathered(x: torch.Tensor, sizes: list[int], cuts: Cuts) -> torch.Tensor:
    """The whole of everybody's shares."""
    most = [rows.count for rows in cuts.rows(sizes, 0)]
    mine = _padded(x, cuts, most).contiguous()
    found = x.new_empty((dist.get_world_size(cuts.all), *mine.shape))
    with waiting.along(cuts.all):
        dist.all_gather_into_tensor(found.view(-1), mine.view(-1), group=cuts.all)
    whole = x.new_empty(resized(x.shape, cuts, sizes))
    for rank, part in enumerate(found):
        put(whole, part, cuts, cuts.rows(sizes, rank))
    return whole


class Share(nn.Module):
    """A share of an image that every rank has."""

    def __init__(self, shape: torch.Size, cuts: Cuts) -> None:
        super().__init__()
        self.sizes, self.cuts = cuts.sizes(shape), cuts

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _Shared.apply(x, self.sizes, self.cuts)


class _Shared(torch.autograd.Function):
    """What counted for all ranks in shares counts for one again, where ranks are alike."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, sizes: list[int], cuts: Cuts) -> torch.Tensor:
        ctx.sizes, ctx.cuts = sizes, cuts
        return cuts.own(x).contiguous()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        whole = _gathered(gradient, ctx.sizes, ctx.cuts)
        return whole / dist.get_world_size(ctx.cuts.all), None, None


def _padded(x: torch.Tensor, cuts: Cuts, most: list[int]) -> torch.Tensor:
    """A share as large as the largest."""
    around = [0] * (2 * (x.dim() - DIM))
    for (dim, _), count in zip(cuts.dims, most, strict=True):
        around[2 * (x.dim() - 1 - dim) + 1] = count - x.shape[dim]
    return F.pad(x, around) if any(around) else x


def resized(shape: torch.Size, cuts: Cuts, sizes: list[int]) -> list[int]:
    found = list(shape)
    for (dim, _), size in zip(cuts.dims, sizes, strict=True):
        found[dim] = size
    return found


def put(whole: torch.Tensor, part: torch.Tensor, cuts: Cuts, rows: list[RowRange]) -> None:
    """A rank's share at its place."""
    for own, (dim, _) in zip(rows, cuts.dims, strict=True):
        whole, part = whole.narrow(dim, own.first, own.count), part.narrow(dim, 0, own.count)
    whole.copy_(part)
