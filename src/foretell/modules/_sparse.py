"""Attention to keys that an index names, as one operator of its own, and what makes the index.

No score is kept, and the backward pass makes scores again, as fused kernels do; here they are made with all keys and
masked, where a kernel gathers the chosen ones. A query whose index names later keys does not see them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from foretell.modules._rotary import Angles, rotate


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _scores(query: torch.Tensor, key: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Scaled scores in fp32, minus infinity where a query does not look."""
    places = query.shape[2]
    seen = torch.zeros(query.shape[0], places, places, dtype=torch.bool, device=query.device)
    seen = seen.scatter(2, index, True).tril()
    scores = _wide(query) @ _wide(key).mT * query.shape[-1] ** -0.5
    return scores.masked_fill(~seen[:, None], -torch.inf)


def _output(query: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """[sample, head, sequence, head_dim] that lies as [sample, sequence, head, head_dim]."""
    sample, head, sequence, _ = query.shape
    return query.new_empty(sample, sequence, head, value.shape[-1]).transpose(1, 2)


@torch.library.custom_op("foretell::sparse_attention", mutates_args=())
def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, index: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The output, and the logarithm of each row's sum of exponentials."""
    scores = _scores(query, key, index)
    sums = scores.logsumexp(-1)
    y = _output(query, value)
    y[:] = (scores - sums[..., None]).exp() @ _wide(value)
    return y, sums


@attention.register_fake
def _(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, index: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    wide = torch.promote_types(query.dtype, torch.float32)
    return _output(query, value), query.new_empty(query.shape[:-1], dtype=wide)


@torch.library.custom_op("foretell::sparse_attention_backward", mutates_args=())
def attention_backward(
    gradient: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, kept: list[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of query, key and value; `kept` are the index, the output and the sums."""
    index, y, sums = kept
    dy, scale = _wide(gradient), query.shape[-1] ** -0.5
    chances = (_scores(query, key, index) - sums[..., None]).exp()
    change = chances * (dy @ _wide(value).mT - (dy * y).sum(-1, keepdim=True)) * scale
    found = change @ _wide(key), change.mT @ _wide(query), chances.mT @ dy
    return found[0].to(query.dtype), found[1].to(key.dtype), found[2].to(value.dtype)


@attention_backward.register_fake
def _(
    gradient: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, kept: list[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    ctx.save_for_backward(*inputs, *output)


def _gradients(ctx: Any, gradient: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    query, key, value, *kept = ctx.saved_tensors
    return (*attention_backward(gradient.contiguous(), query, key, value, kept), None)


attention.register_autograd(_gradients, setup_context=_keep)


class Index(nn.Module):
    """The places that each place sees: the best by a few small heads over one key. Nothing here is trained."""

    def __init__(self, hidden: int, rank: int, heads: int, features: int, top_k: int) -> None:
        super().__init__()
        self.heads, self.top_k = heads, top_k
        self.query = nn.Linear(rank, heads * features, bias=False)
        self.key = nn.Linear(hidden, features, bias=False)
        self.key_norm = nn.LayerNorm(features)
        self.weights = nn.Linear(hidden, heads, bias=False)
        self.requires_grad_(False)

    @torch.no_grad()
    def forward(self, x: torch.Tensor, latent: torch.Tensor, angles: Angles) -> torch.Tensor:
        query = rotate(self.query(latent).unflatten(-1, (self.heads, -1)).transpose(1, 2), angles)
        key = rotate(self.key_norm(self.key(x))[:, None], angles)
        scores = (query.float() @ key.float().mT).relu()
        weights = self.weights(x).float() * self.heads**-0.5
        matters = (weights[:, :, None] @ scores.transpose(1, 2))[:, :, 0]
        later = torch.ones(matters.shape[1:], dtype=torch.bool, device=x.device).triu(1)
        return matters.masked_fill(later, -torch.inf).topk(min(self.top_k, x.shape[1]), dim=-1).indices
