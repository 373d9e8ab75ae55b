"""What the modules of encoders share: multi-head attention, feed-forward, and both behind norms."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import nn

from foretell.model.zoo._encoder import AttentionBiases, PreNorm


class GeluTanh(nn.GELU):
    """GELU by the approximation with a tanh."""

    def __init__(self) -> None:
        super().__init__("tanh")


class QuickGelu(nn.Module):
    """x times the sigmoid of 1.702 x."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (1.702 * x).sigmoid()


ACTIVATIONS: dict[str, type[nn.Module]] = {
    "gelu": nn.GELU,
    "gelu_tanh": GeluTanh,
    "quick_gelu": QuickGelu,
    "relu": nn.ReLU,
    "silu": nn.SiLU,
}
"""The zoo's words for the functions of a feed-forward."""


def scores_written_out(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor | None,
    scale: float,
    rate: float,
) -> torch.Tensor:
    """Attention of [..., head, sequence, head_dim] step by step: the `math` kernel."""
    if scale != 1.0:
        query = query * scale
    scores = query @ key.transpose(-1, -2)
    if bias is not None:
        scores = scores + bias
    return F.dropout(F.softmax(scores, dim=-1), rate) @ value


class MultiHeadAttention(nn.Module):
    """Queries of x over the keys and values of `memory`, in heads, and an output layer."""

    def __init__(
        self,
        hidden: int,
        heads: int,
        *,
        head_dim: int = 0,
        bias: bool | AttentionBiases = True,
        memory: int = 0,
        kernel: str = "flash",
        scaled: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        has = bias if isinstance(bias, AttentionBiases) else AttentionBiases(bias, bias, bias)
        self.head_dim = head_dim or hidden // heads
        self.written_out = kernel == "math"
        self.scale = self.head_dim**-0.5 if scaled else 1.0
        self.dropout = dropout
        inner = heads * self.head_dim
        self.query = nn.Linear(hidden, inner, bias=has.rest)
        self.key = nn.Linear(memory or hidden, inner, bias=has.key)
        self.value = nn.Linear(memory or hidden, inner, bias=has.rest)
        self.output = nn.Linear(inner, hidden, bias=has.output)

    def forward(
        self,
        x: torch.Tensor,
        memory: torch.Tensor | None = None,
        bias: torch.Tensor | Literal["causal"] | None = None,
    ) -> torch.Tensor:
        causal, added = (True, None) if isinstance(bias, str) else (False, bias)
        source = x if memory is None else memory
        query, key, value = self._heads(self.query(x)), self._heads(self.key(source)), self._heads(self.value(source))
        rate = self.dropout if self.training else 0.0
        if self.written_out:
            added = _future(query) if causal else added
            y = scores_written_out(query, key, value, added, self.scale, rate)
        else:
            y = F.scaled_dot_product_attention(query, key, value, added, rate, causal, scale=self.scale)
        return self.output(y.transpose(-3, -2).flatten(-2))

    def _heads(self, x: torch.Tensor) -> torch.Tensor:
        """[..., sequence, head * head_dim] as [..., head, sequence, head_dim]."""
        return x.unflatten(-1, (-1, self.head_dim)).transpose(-3, -2)


class FeedForward(nn.Module):
    """Two dense layers with an activation between them."""

    def __init__(self, hidden: int, ffn: int, activation: str = "gelu", dropout: float = 0.0) -> None:
        super().__init__()
        self.up = nn.Linear(hidden, ffn)
        self.activation = ACTIVATIONS[activation]()
        self.dropout = nn.Dropout(dropout)
        self.down = nn.Linear(ffn, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.dropout(self.activation(self.up(x))))


def _future(query: torch.Tensor) -> torch.Tensor:
    """Minus infinity above the diagonal, for queries [..., sequence, head_dim]."""
    places = query.shape[-2]
    return torch.full((places, places), -torch.inf, dtype=query.dtype, device=query.device).triu_(1)


class PreNormLayer(nn.Module):
    """Attention, attention to a memory where there is one, and feed-forward: each after a norm, around a shortcut."""

    def __init__(self, hidden: int, of: PreNorm) -> None:
        super().__init__()
        self.causal = of.causal
        self.attention_norm = nn.LayerNorm(hidden, eps=1e-6)
        self.attention = MultiHeadAttention(hidden, of.heads, bias=of.biases, kernel=of.kernel)
        self.cross_attention_norm = nn.LayerNorm(hidden, eps=1e-6) if of.crossed else None
        self.cross_attention = (
            MultiHeadAttention(hidden, of.heads, bias=of.biases, kernel=of.kernel) if of.crossed else None
        )
        self.feed_forward_norm = nn.LayerNorm(hidden, eps=1e-6)
        self.feed_forward = FeedForward(hidden, of.ffn, of.activation, of.dropout)
        self.dropout = nn.Dropout(of.dropout)

    def forward(self, x: torch.Tensor, memory: torch.Tensor | None = None) -> torch.Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x), bias="causal" if self.causal else None))
        if self.cross_attention is not None and self.cross_attention_norm is not None:
            x = x + self.dropout(self.cross_attention(self.cross_attention_norm(x), memory))
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
