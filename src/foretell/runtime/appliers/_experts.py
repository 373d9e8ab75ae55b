# pyright: basic
"""Experts in shares: rows of tokens go where their expert is, or every rank has some columns of every expert.

The module hands its experts rows that are sorted by expert, and where those of each end. That is the seam: rows travel
there, are sorted anew by the experts of this rank, and go back the way they came.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from foretell.modules._experts import Experts
from foretell.runtime.appliers._master import Times
from foretell.runtime.appliers._sharing import Collected, Copied, Scattered, Sent, Summed, gathered, sent


def counts(offsets: torch.Tensor) -> torch.Tensor:
    """Rows of each expert, from where they end."""
    return torch.diff(offsets, prepend=offsets.new_zeros(1)).to(torch.int64)


def _sorted_by_expert(each: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The order that puts rows together by expert, and where each expert's end: `each[source, expert]` rows came."""
    expert = torch.arange(each.shape[1], device=each.device).repeat(each.shape[0])
    order = expert.repeat_interleave(each.flatten()).argsort(stable=True)
    return order, each.sum(0).cumsum(0).to(torch.int32)


def columns(experts: Experts, group: dist.ProcessGroup, sequence: bool) -> None:
    """Some columns of every expert here; with shares of the sequence, the rows of all ranks are collected first."""
    inner = experts.forward
    if not sequence:
        for part in (experts.gate, experts.up):
            _enter(part, group)
        experts.forward = lambda x, offsets: Summed.apply(inner(x, offsets), group)
        return

    def forward(x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        each = gathered(counts(offsets)[None], 0, group)
        order, ends = _sorted_by_expert(each)
        rows = Collected.apply(x, 0, group).index_select(0, order)
        y = torch.empty_like(rows).index_copy(0, order, inner(rows, ends))
        return Scattered.apply(y, 0, group)

    experts.forward = forward


def _enter(part: nn.Module, group: dist.ProcessGroup) -> None:
    inner = part.forward
    part.forward = lambda x, offsets: inner(Copied.apply(x, group), offsets)


def divide(experts: Any, group: dist.ProcessGroup, losses: int) -> None:
    """Leave this rank some of the experts; tokens come from all ranks, and go back.

    The ranks have so many losses among them, whose mean counts. Between the two journeys gradients are those of that
    mean, so that what weights here gather from all ranks is what weights have that all ranks have.
    """
    inner, ranks, rank = experts.forward, dist.get_world_size(group), dist.get_rank(group)
    for part in (experts.gate, experts.up, experts.down):
        part.weight = nn.Parameter(part.weight.detach().chunk(ranks)[rank].clone())

    def forward(x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        given = counts(offsets).view(ranks, -1)
        own = given.shape[1]
        taken = sent(given.flatten(), [own] * ranks, [own] * ranks, group).view(ranks, own)
        to, of = given.sum(1).tolist(), taken.sum(1).tolist()
        order, ends = _sorted_by_expert(taken)
        rows = Times.apply(Sent.apply(x, to, of, group), float(losses)).index_select(0, order)
        y = torch.empty_like(rows).index_copy(0, order, inner(rows, ends))
        return Sent.apply(Times.apply(y, 1 / losses), of, to, group)

    experts.forward = forward
