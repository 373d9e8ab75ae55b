"""T5 as a PyTorch module."""

from __future__ import annotations

import math

import torch
from torch import nn

from foretell.model.zoo.t5 import T5
from foretell.modules._encoder import ACTIVATIONS, MultiHeadAttention
from foretell.modules._normalization import RMSNorm
from foretell.modules.task import Example, token_loss


def distance_buckets(length: int, buckets: int, furthest: int, causal: bool) -> torch.Tensor:
    """For each pair (query, key) the bucket of their distance: exact when near, then logarithmic.

    A causal stack looks back only; otherwise half of the buckets are for keys ahead.
    """
    place = torch.arange(length)
    ahead = place.unsqueeze(0) - place.unsqueeze(1)
    if causal:
        first, distance = torch.zeros_like(ahead), (-ahead).clamp(min=0)
    else:
        buckets //= 2
        first, distance = (ahead > 0) * buckets, ahead.abs()
    exact = buckets // 2
    ratio = torch.log(distance.clamp(min=1).double() / exact) / math.log(furthest / exact)
    coarse = (exact + (ratio * (buckets - exact)).long()).clamp(max=buckets - 1)
    return first + torch.where(distance < exact, distance, coarse)


class T5FeedForward(nn.Module):
    """Two dense layers without bias, or three with a gate."""

    def __init__(self, fields: T5) -> None:
        super().__init__()
        self.gate = nn.Linear(fields.hidden, fields.ffn, bias=False) if fields.gated else None
        self.up = nn.Linear(fields.hidden, fields.ffn, bias=False)
        self.down = nn.Linear(fields.ffn, fields.hidden, bias=False)
        self.activation = ACTIVATIONS[fields.activation]()
        self.dropout = nn.Dropout(fields.dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.activation(self.up(x)) if self.gate is None else self.activation(self.gate(x)) * self.up(x)
        return self.down(self.dropout(y))


class T5Block(nn.Module):
    """Attention, in the decoder also over the encoder's output, and feed-forward; norms come first."""

    def __init__(self, fields: T5, decodes: bool) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(fields.hidden)
        self.attention = self._attention(fields)
        if decodes:
            self.cross_attention_norm = RMSNorm(fields.hidden)
            self.cross_attention = self._attention(fields)
        self.feed_forward_norm = RMSNorm(fields.hidden)
        self.feed_forward = T5FeedForward(fields)
        self.dropout = nn.Dropout(fields.dropout)

    @staticmethod
    def _attention(fields: T5) -> MultiHeadAttention:
        return MultiHeadAttention(
            fields.hidden,
            fields.heads,
            head_dim=fields.head_dim,
            bias=False,
            kernel=fields.attention,
            scaled=False,
            dropout=fields.dropout,
        )

    def forward(self, x: torch.Tensor, bias: torch.Tensor, memory: torch.Tensor | None = None) -> torch.Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x), bias=bias))
        if memory is not None:
            x = x + self.dropout(self.cross_attention(self.cross_attention_norm(x), memory))
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))


class T5Stack(nn.Module):
    """The encoder or the decoder: layers that share one bias for distances."""

    def __init__(self, fields: T5, layers: int, length: int, decodes: bool) -> None:
        super().__init__()
        buckets = distance_buckets(length, fields.buckets, fields.distance, causal=decodes)
        self.register_buffer("buckets", buckets, persistent=False)
        future = torch.ones(length, length, dtype=torch.bool).triu(1) if decodes else None
        self.register_buffer("future", future, persistent=False)
        self.position_bias = nn.Embedding(fields.buckets, fields.heads)
        self.layers = nn.ModuleList(T5Block(fields, decodes) for _ in range(layers))
        self.norm = RMSNorm(fields.hidden)
        self.dropout = nn.Dropout(fields.dropout)

    def forward(self, x: torch.Tensor, memory: torch.Tensor | None = None) -> torch.Tensor:
        length = x.shape[1]
        bias = self.position_bias(self.buckets[:length, :length]).permute(2, 0, 1).contiguous()
        if self.future is not None:
            bias = bias.masked_fill(self.future[:length, :length], float("-inf"))
        for layer in self.layers:
            x = layer(x, bias, memory)
        return self.dropout(self.norm(x))


class T5Module(nn.Module):
    """Scores of the next token of the target, given the input and the target so far."""

    def __init__(self, fields: T5) -> None:
        super().__init__()
        self.shared = nn.Embedding(fields.vocab, fields.hidden)
        self.dropout = nn.Dropout(fields.dropout)
        self.encoder = T5Stack(fields, fields.layers, fields.seq, decodes=False)
        self.decoder = T5Stack(fields, fields.decoder_layers or fields.layers, fields.target_length, decodes=True)
        self.head = nn.Linear(fields.hidden, fields.vocab, bias=False)
        self._initialize(fields)
        if fields.tied:
            self.head.weight = self.shared.weight
        self.scale = fields.hidden**-0.5 if fields.tied else 1.0

    def _initialize(self, fields: T5) -> None:
        """Queries are small because scores are not scaled."""
        for part in self.modules():
            if isinstance(part, nn.Linear):
                nn.init.normal_(part.weight, std=part.in_features**-0.5)
            elif isinstance(part, MultiHeadAttention):
                nn.init.normal_(part.query.weight, std=(fields.hidden * fields.head_dim) ** -0.5)
            elif isinstance(part, T5Stack):
                nn.init.normal_(part.position_bias.weight, std=fields.hidden**-0.5)

    def forward(self, tokens: torch.Tensor, target_tokens: torch.Tensor) -> torch.Tensor:
        memory = self.encoder(self.dropout(self.shared(tokens)))
        x = self.decoder(self.dropout(self.shared(target_tokens)), memory)
        return self.head(x * self.scale if self.scale != 1.0 else x)


def module(fields: T5) -> nn.Module:
    return T5Module(fields)


def example(fields: T5, batch: int) -> Example:
    tokens = torch.randint(fields.vocab, (batch, fields.seq))
    target_tokens = torch.randint(fields.vocab, (batch, fields.target_length))
    return Example((tokens, target_tokens), torch.randint(fields.vocab, (batch, fields.target_length)), token_loss)
