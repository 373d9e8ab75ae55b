"""Experts as one grouped matrix product: every row of x is multiplied by the weight of its expert.

Rows are sorted by expert and `offsets[e]` is the first row after those of expert e. The number of
rows never depends on the data, so the operator works on fake tensors and with any spread.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from foretell.model.zoo._experts import Routing
from foretell.modules._decoder import GatedFeedForward


def _fused(x: torch.Tensor) -> bool:
    """Whether PyTorch has a kernel for all groups at once."""
    return x.is_cuda and x.dtype is torch.bfloat16 and torch.cuda.get_device_capability(x.device) >= (8, 0)


def _groups(offsets: torch.Tensor) -> list[tuple[int, slice]]:
    """Every expert with its rows."""
    ends = [0, *offsets.tolist()]
    return [(expert, slice(ends[expert], ends[expert + 1])) for expert in range(len(offsets))]


@torch.library.custom_op("foretell::grouped_mm", mutates_args=())
def grouped_product(x: torch.Tensor, w: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """y[row] = x[row] w[expert of row], for x[row, in] and w[expert, in, out]."""
    if _fused(x):
        return torch._grouped_mm(x, w, offs=offsets)
    y = x.new_empty(x.shape[0], w.shape[-1])
    for expert, rows in _groups(offsets):
        torch.mm(x[rows], w[expert], out=y[rows])
    return y


@grouped_product.register_fake
def _(x: torch.Tensor, w: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape[0], w.shape[-1])


@torch.library.custom_op("foretell::grouped_mm_weight_gradient", mutates_args=())
def grouped_mm_weight_gradient(x: torch.Tensor, gradient: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """w[expert] = x[its rows]^T gradient[its rows]; zero for an expert without rows."""
    if _fused(x):
        return torch._grouped_mm(x.t(), gradient, offs=offsets)
    w = x.new_empty(offsets.shape[0], x.shape[-1], gradient.shape[-1])
    for expert, rows in _groups(offsets):
        torch.mm(x[rows].t(), gradient[rows], out=w[expert])
    return w


@grouped_mm_weight_gradient.register_fake
def _(x: torch.Tensor, gradient: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    return x.new_empty(offsets.shape[0], x.shape[-1], gradient.shape[-1])


def _keep(ctx: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gradients(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None, None]:
    x, w, offsets = ctx.saved_tensors
    gradient = gradient.contiguous()
    of_x = grouped_product(gradient, w.transpose(1, 2), offsets) if ctx.needs_input_grad[0] else None
    of_w = grouped_mm_weight_gradient(x, gradient, offsets) if ctx.needs_input_grad[1] else None
    return of_x, of_w, None


grouped_product.register_autograd(_gradients, setup_context=_keep)


def grouped_mm(x: torch.Tensor, w: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """The product; autocast does not know it, and has products run in 16 bits."""
    device = x.device.type
    if device != "meta" and torch.is_autocast_enabled(device):
        narrow = torch.get_autocast_dtype(device)
        x, w = x.to(narrow), w.to(narrow)
    return grouped_product(x, w, offsets)


class GroupedLinear(nn.Module):
    """One dense layer without bias for each expert."""

    def __init__(self, experts: int, features: int, columns: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(features)
        self.weight = nn.Parameter(torch.empty(experts, features, columns).uniform_(-bound, bound))

    def forward(self, x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return grouped_mm(x, self.weight, offsets)


class BiasedGroupedLinear(GroupedLinear):
    """One dense layer with a bias for each expert; `numbers` are the experts of the rows."""

    def __init__(self, experts: int, features: int, columns: int) -> None:
        super().__init__(experts, features, columns)
        self.bias = nn.Parameter(torch.zeros(experts, columns))

    def forward(self, x: torch.Tensor, offsets: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        return super().forward(x, offsets) + self.bias.index_select(0, numbers)


class Router(nn.Module):
    """The weights and numbers of each token's experts; scores are in fp32."""

    def __init__(self, hidden: int, routing: Routing) -> None:
        super().__init__()
        self.routing = routing
        self.weight = nn.Parameter(torch.empty(routing.experts, hidden).normal_(std=0.02))
        self.bias = nn.Parameter(torch.zeros(routing.experts)) if routing.bias else None
        if routing.corrected:
            self.register_buffer("correction", torch.zeros(routing.experts, dtype=torch.float32))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(weights, numbers), both [token, chosen], for x[token, hidden]."""
        logits = F.linear(x, self.weight, self.bias).float()
        if self.routing.score == "chosen":
            with torch.no_grad():
                chosen = logits.topk(self.routing.top_k).indices
            return logits.gather(1, chosen).softmax(-1).to(x.dtype), chosen
        scores = logits.softmax(-1) if self.routing.score == "softmax" else logits.sigmoid()
        chosen = self._choose(scores)
        weights = scores.gather(1, chosen)
        if self.routing.normalized:
            weights = weights / weights.sum(-1, keepdim=True)
        if self.routing.scale != 1.0:
            weights = weights * self.routing.scale
        return weights.to(x.dtype), chosen

    @torch.no_grad()
    def _choose(self, scores: torch.Tensor) -> torch.Tensor:
        """The numbers of the best experts, if need be among the best groups."""
        routing = self.routing
        if routing.corrected:
            scores = scores + self.correction
        if routing.top_groups < routing.groups:
            grouped = scores.unflatten(1, (routing.groups, -1))
            best = grouped.topk(routing.group_best).values.sum(-1)
            hidden = torch.ones_like(best, dtype=torch.bool)
            hidden.scatter_(1, best.topk(routing.top_groups).indices, False)
            scores = grouped.masked_fill(hidden[..., None], -torch.inf).flatten(1)
        return scores.topk(routing.top_k).indices


class Experts(nn.Module):
    """Gated feed-forwards, one for each expert, over rows that are sorted by expert."""

    def __init__(self, experts: int, hidden: int, ffn: int) -> None:
        super().__init__()
        self.gate = GroupedLinear(experts, hidden, ffn)
        self.up = GroupedLinear(experts, hidden, ffn)
        self.down = GroupedLinear(experts, ffn, hidden)

    def forward(self, x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x, offsets)) * self.up(x, offsets), offsets)


class BiasedExperts(nn.Module):
    """Experts with biases, and gates within a limit: down((up + 1) * gate * sigmoid(a * gate))."""

    SLOPE, LIMIT = 1.702, 7.0

    def __init__(self, experts: int, hidden: int, ffn: int) -> None:
        super().__init__()
        self.gate = BiasedGroupedLinear(experts, hidden, ffn)
        self.up = BiasedGroupedLinear(experts, hidden, ffn)
        self.down = BiasedGroupedLinear(experts, ffn, hidden)

    def forward(self, x: torch.Tensor, offsets: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        gate = self.gate(x, offsets, numbers).clamp(max=self.LIMIT)
        up = self.up(x, offsets, numbers).clamp(-self.LIMIT, self.LIMIT)
        return self.down((up + 1) * (gate * (gate * self.SLOPE).sigmoid()), offsets, numbers)


class ExpertFeedForward(nn.Module):
    """Every token through the experts that its router chooses, and through those that all tokens share."""

    def __init__(
        self,
        hidden: int,
        ffn: int,
        routing: Routing,
        shared_ffn: int = 0,
        shared_gate: bool = False,
        *,
        biased: bool = False,
    ) -> None:
        super().__init__()
        self.router = Router(hidden, routing)
        self.biased = biased
        self.experts = (BiasedExperts if biased else Experts)(routing.experts, hidden, ffn)
        self.shared = GatedFeedForward(hidden, shared_ffn) if shared_ffn else None
        self.shared_gate = nn.Linear(hidden, 1, bias=False) if shared_ffn and shared_gate else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self._routed(x.flatten(0, -2)).view_as(x)
        if self.shared is None:
            return y
        shared = self.shared(x)
        if self.shared_gate is not None:
            shared = shared * self.shared_gate(x).sigmoid()
        return y + shared

    def _routed(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.router(x)
        numbers, order = chosen.flatten().sort(stable=True)
        ends = torch.arange(self.router.routing.experts, device=x.device)
        offsets = torch.searchsorted(numbers, ends, right=True, out_int32=True)
        source = order // chosen.shape[1]  # the token of each row
        y, weights = x.index_select(0, source), weights.flatten().index_select(0, order)[:, None]
        if self.router.routing.before:
            y = y * weights
        y = self.experts(y, offsets, numbers) if self.biased else self.experts(y, offsets)
        if not self.router.routing.before:
            y = y * weights
        # scatter_add keeps the index alone; index_add would keep the rows as well
        return torch.zeros_like(x).scatter_add(0, source[:, None].expand_as(y), y)
