# pyright: basic
"""Windows over a dim that lies in shares: the rows that a share's windows reach beyond it come from other ranks."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from foretell.runtime import waiting

DIM = 2
"""Of [sample, channel, height, ...]: the first extent that can be shared out."""


class RowRange(NamedTuple):
    """Rows from `first` up to, not with, `last`."""

    first: int
    last: int

    def within(self, other: RowRange) -> RowRange:
        """Those that both have; none if last is not above first."""
        return RowRange(max(self.first, other.first), min(self.last, other.last))

    @property
    def count(self) -> int:
        return max(0, self.last - self.first)


def share(size: int, rank: int, ranks: int) -> RowRange:
    """The rows of one rank: as equal as can be, the first ranks have more."""
    each, more = divmod(size, ranks)
    first = rank * each + min(rank, more)
    return RowRange(first, first + each + (rank < more))


class RowWindow(NamedTuple):
    """How an operator walks over rows: of how many it makes how many."""

    size: int  # rows that go in
    made: int  # rows that come out
    kernel: int  # rows under a window, dilation counted
    stride: int
    padding: int

    def reach(self, rank: int, ranks: int) -> RowRange:
        """The rows that a rank's outputs are made of; some may lie outside, where padding is."""
        own = share(self.made, rank, ranks)
        return RowRange(
            own.first * self.stride - self.padding, (own.last - 1) * self.stride - self.padding + self.kernel
        )

    def needs(self, rank: int, ranks: int) -> RowRange:
        return self.reach(rank, ranks).within(RowRange(0, self.size))


def exchanged(x: torch.Tensor, dim: int, window: RowWindow, group: dist.ProcessGroup) -> torch.Tensor:
    """The rows along a dim that this rank's windows need, out of everybody's shares."""
    return _Exchanged.apply(x, dim, window, group)


class _Exchanged(torch.autograd.Function):
    """Rows go to those who need them; their gradients come back to those who have them, and are added."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, dim: int, window: RowWindow, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.dim, ctx.window, ctx.group, ctx.shape = dim, window, group, x.shape
        return _moved(x, dim, window, group)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        return _moved_back(gradient, ctx.dim, ctx.shape, ctx.window, ctx.group), None, None, None


@waiting.speaks
def _moved(x: torch.Tensor, dim: int, window: RowWindow, group: dist.ProcessGroup) -> torch.Tensor:
    ranks, rank = dist.get_world_size(group), dist.get_rank(group)
    own, needs = share(window.size, rank, ranks), window.needs(rank, ranks)
    pieces: dict[int, torch.Tensor] = {rank: _cut(x, dim, needs.within(own), own.first)}
    messages: list[dist.P2POp] = []
    for other in _others(rank, ranks):
        wanted = window.needs(other, ranks).within(own)
        if wanted.count:
            messages.append(_message(dist.isend, _cut(x, dim, wanted, own.first).contiguous(), other, group))
        missing = needs.within(share(window.size, other, ranks))
        if missing.count:
            pieces[other] = _like(x, dim, missing.count)
            messages.append(_message(dist.irecv, pieces[other], other, group))
    _waited(messages, group)
    return torch.cat([pieces[other] for other in sorted(pieces)], dim)


@waiting.speaks
def _moved_back(
    gradient: torch.Tensor, dim: int, shape: torch.Size, window: RowWindow, group: dist.ProcessGroup
) -> torch.Tensor:
    ranks, rank = dist.get_world_size(group), dist.get_rank(group)
    own, needs = share(window.size, rank, ranks), window.needs(rank, ranks)
    total = gradient.new_zeros(shape)
    here = needs.within(own)
    _cut(total, dim, here, own.first).add_(_cut(gradient, dim, here, needs.first))
    messages: list[dist.P2POp] = []
    summands: list[tuple[RowRange, torch.Tensor]] = []
    for other in _others(rank, ranks):
        lent = needs.within(share(window.size, other, ranks))
        if lent.count:
            messages.append(_message(dist.isend, _cut(gradient, dim, lent, needs.first).contiguous(), other, group))
        borrowed = window.needs(other, ranks).within(own)
        if borrowed.count:
            summands.append((borrowed, _like(gradient, dim, borrowed.count)))
            messages.append(_message(dist.irecv, summands[-1][1], other, group))
    _waited(messages, group)
    for rows, summand in summands:
        _cut(total, dim, rows, own.first).add_(summand)
    return total


def _cut(x: torch.Tensor, dim: int, rows: RowRange, first: int) -> torch.Tensor:
    """Some rows of a tensor whose first row is `first`."""
    return x.narrow(dim, rows.first - first if rows.count else 0, rows.count)


def _like(x: torch.Tensor, dim: int, rows: int) -> torch.Tensor:
    return x.new_empty((*x.shape[:dim], rows, *x.shape[dim + 1 :]))


def _others(rank: int, ranks: int) -> list[int]:
    return [other for other in range(ranks) if other != rank]


def _message(function: Any, tensor: torch.Tensor, other: int, group: dist.ProcessGroup) -> dist.P2POp:
    return dist.P2POp(function, tensor, group=group, group_peer=other)


def _waited(messages: list[dist.P2POp], group: dist.ProcessGroup) -> None:
    """All at once, those that come first: with gloo the word that a rank is ready would wait behind what it sends."""
    ordered = sorted(messages, key=lambda one: one.op is dist.isend)
    with waiting.along(group):
        for work in dist.batch_isend_irecv(ordered) if ordered else ():
            work.wait()
