# pyright: basic
"""Experts in shares: rows of tokens go where their expert is, or every rank has some columns of every expert.

The module hands its experts rows that are sorted by expert, and where those of each end. That is the seam: rows travel
there, are sorted anew by the experts of this rank, and go back the way they came.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from foretell.modules._experts import GroupedLinear, grouped_mm
from foretell.runtime.appliers._master import ScaledGradient
from foretell.runtime.appliers._sharing import Collected, Copied, Scattered, Sent, Summed, gathered, sent
from foretell.runtime.appliers.lora import is_adapted


def counts(offsets: torch.Tensor) -> torch.Tensor:
    """Rows of each expert, from where they end."""
    return torch.diff(offsets, prepend=offsets.new_zeros(1)).to(torch.int64)


def _sorted_by_expert(each: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The order that puts rows together by expert, and where each expert's end: `each[source, expert]` rows came."""
    expert = torch.arange(each.shape[1], device=each.device).repeat(each.shape[0])
    order = expert.repeat_interleave(each.flatten()).argsort(stable=True)
    return order, each.sum(0).cumsum(0).to(torch.int32)


class _Journey(NamedTuple):
    """Rows that go to each rank and come from each; the order that puts these together by expert, and their ends."""

    to: list[int]
    of: list[int]
    order: torch.Tensor
    ends: torch.Tensor


def _uneven(given: torch.Tensor, taken: torch.Tensor) -> _Journey:
    """As routers chose: `given[rank, expert]` rows go there, and `taken[rank, expert]` come."""
    return _Journey(given.sum(1).tolist(), taken.sum(1).tolist(), *_sorted_by_expert(taken))


def _told(rows: int, taken: torch.Tensor, fullest: float) -> _Journey:
    """As the program has it: as many rows to every rank, so many times as many to this one, shared among its experts.

    Numbers may have no values here, so nothing is sorted.
    """
    ranks, own = taken.shape
    comes = math.ceil(rows * fullest)
    to, of = ([count // ranks + (rank < count % ranks) for rank in range(ranks)] for count in (rows, comes))
    if fullest == 1:
        ends = taken.sum(0).cumsum(0).to(torch.int32)
    else:
        ends = torch.tensor([comes * (at + 1) // own for at in range(own)], dtype=torch.int32, device=taken.device)
    return _Journey(to, of, torch.arange(comes, device=taken.device), ends)


class Columns:
    """The forward of experts of which every rank has some columns; with shares of the sequence, ranks first collect the
    rows of all. Adapters go on with the rows that are here, and what their first matrices make travels: it is thin."""

    def __init__(self, experts: Any, group: dist.ProcessGroup, sequence: bool, even: bool = False) -> None:
        self.experts, self.group, self.sequence, self.even = experts, group, sequence, even

    def __call__(self, x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        experts: Any = self.experts
        way: Any = _AlikeRows(offsets, self.group)
        if self.sequence:
            way = _Rows(offsets, self.group, len(x) if self.even else 0)
        whole = way.entered(x) if self.sequence else x  # once for both layers that read it
        inner = F.silu(self._into(experts.gate, x, whole, way)) * self._into(experts.up, x, whole, way)
        return self._out_of(experts.down, inner, way)

    def _into(self, part: Any, x: torch.Tensor, whole: torch.Tensor, way: Any) -> torch.Tensor:
        """Some columns of a first layer."""
        y = grouped_mm(whole if self.sequence else way.entered(x), part.weight, way.ends)
        if not is_adapted(part):
            return y
        return y + grouped_mm(way.entered(part.lora_a(x, way.offsets)), part.lora_b.weight, way.ends)

    def _out_of(self, part: Any, inner: torch.Tensor, way: Any) -> torch.Tensor:
        y = way.left(grouped_mm(inner, part.weight, way.ends))
        if not is_adapted(part):
            return y
        return y + part.lora_b(way.left(grouped_mm(inner, part.lora_a.weight, way.ends)), way.offsets)


class _AlikeRows:
    """Every rank has the same rows."""

    def __init__(self, offsets: torch.Tensor, group: dist.ProcessGroup) -> None:
        self.offsets = self.ends = offsets
        self.group = group

    def entered(self, x: torch.Tensor) -> torch.Tensor:
        return Copied.apply(x, self.group)

    def left(self, y: torch.Tensor) -> torch.Tensor:
        return Summed.apply(y, self.group)


class _Rows:
    """Every rank has rows of its own, perhaps not as many as others: what travels is as long as the longest of them.

    `even`: as many as each of them has, where others are not there to say.
    """

    def __init__(self, offsets: torch.Tensor, group: dist.ProcessGroup, even: int = 0) -> None:
        self.offsets, self.group = offsets, group
        each = gathered(counts(offsets)[None], 0, group)
        if even:
            self.own = self.most = even
            self.places = torch.arange(even * len(each), device=each.device)
            self.ends = each.sum(0).cumsum(0).to(torch.int32)
            return
        order, self.ends = _sorted_by_expert(each)
        rows = each.sum(1)
        self.own, self.most = int(offsets[-1]), int(rows.max())
        starts = rows.cumsum(0) - rows
        gaps = torch.arange(len(rows), device=rows.device) * self.most - starts
        self.places = (torch.arange(len(order), device=rows.device) + gaps.repeat_interleave(rows))[order]

    def entered(self, x: torch.Tensor) -> torch.Tensor:
        """The rows of all, sorted by expert."""
        padded = F.pad(x, (0, 0, 0, self.most - self.own)) if self.own < self.most else x
        return Collected.apply(padded, 0, self.group).index_select(0, self.places)

    def left(self, y: torch.Tensor) -> torch.Tensor:
        """The sums of this rank's rows."""
        size = self.most * dist.get_world_size(self.group)
        whole = y.new_empty(size, y.shape[1]).index_copy(0, self.places, y)
        return Scattered.apply(whole, 0, self.group)[: self.own]


def divide(experts: Any, group: dist.ProcessGroup, losses: int, fullest: float = 0.0) -> None:
    """Leave this rank some of the experts; tokens come from all ranks, and go back; as many from each and to each where
    `fullest` is given, and that many times as many to this one.

    The ranks have so many losses among them, whose mean counts. Between the two journeys gradients are those of that
    mean, so that what weights here gather from all ranks is what weights have that all ranks have.
    """
    inner, ranks, rank = experts.forward, dist.get_world_size(group), dist.get_rank(group)
    for part in experts.modules():
        if isinstance(part, GroupedLinear):
            share = part.weight.detach().chunk(ranks)[rank].clone()
            part.weight = nn.Parameter(share, requires_grad=part.weight.requires_grad)

    def forward(x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        given = counts(offsets).view(ranks, -1)
        own = given.shape[1]
        taken = sent(given.flatten(), [own] * ranks, [own] * ranks, group).view(ranks, own)
        to, of, order, ends = _told(len(x), taken, fullest) if fullest else _uneven(given, taken)
        rows = ScaledGradient.apply(Sent.apply(x, to, of, group), float(losses)).index_select(0, order)
        made = inner(rows, ends)  # in 16 bits, perhaps, of rows that were not
        y = torch.empty_like(made).index_copy(0, order, made)
        return Sent.apply(ScaledGradient.apply(y, 1 / losses), of, to, group)

    experts.forward = forward
