"""GPT, OPT, BLOOM and Nemotron as PyTorch modules."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from foretell.model.zoo.gpt import Gpt
from foretell.modules._decoder import GatedFeedForward, causal_attention, distances
from foretell.modules._rotary import Angles, RotaryTable, rotate
from foretell.modules.task import Example, tokens


def _squared_relu(x: torch.Tensor) -> torch.Tensor:
    return F.relu(x).square()


FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "squared_relu": _squared_relu,
    "silu": F.silu,
}


class FusedAttention(nn.Module):
    """Causal attention whose queries, keys and values are one product, cut into views."""

    def __init__(self, fields: Gpt) -> None:
        super().__init__()
        self.heads = (fields.heads, fields.shared_heads, fields.shared_heads)
        self.head_dim = fields.size
        self.kernel = fields.attention
        self.dropout = fields.dropout
        self.qkv = nn.Linear(fields.hidden, sum(self.heads) * fields.size, bias=fields.bias)
        self.output = nn.Linear(fields.heads * fields.size, fields.hidden, bias=fields.bias)

    def forward(self, x: torch.Tensor, angles: Angles | None, bias: torch.Tensor | None) -> torch.Tensor:
        parts = self.qkv(x).unflatten(-1, (-1, self.head_dim)).split(self.heads, dim=2)
        query, key, value = (part.transpose(1, 2) for part in parts)
        if angles is not None:
            query, key = rotate(query, angles), rotate(key, angles)
        rate = self.dropout if self.training else 0.0
        return self.output(causal_attention(query, key, value, self.kernel, bias, rate))


class GptFeedForward(nn.Module):
    """Two dense layers with an activation between them."""

    def __init__(self, fields: Gpt) -> None:
        super().__init__()
        self.function = FUNCTIONS[fields.activation]
        self.up = nn.Linear(fields.hidden, fields.inner, bias=fields.bias)
        self.down = nn.Linear(fields.inner, fields.hidden, bias=fields.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.function(self.up(x)))


class GptLayer(nn.Module):
    """Attention and feed-forward, each after a norm and around a shortcut."""

    def __init__(self, fields: Gpt) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(fields.hidden)
        self.attention = FusedAttention(fields)
        self.feed_forward_norm = nn.LayerNorm(fields.hidden)
        if fields.gated:
            function = FUNCTIONS[fields.activation]
            self.feed_forward = GatedFeedForward(fields.hidden, fields.inner, function, fields.bias)
        else:
            self.feed_forward = GptFeedForward(fields)
        self.dropout = nn.Dropout(fields.dropout)

    def forward(self, x: torch.Tensor, angles: Angles | None = None, bias: torch.Tensor | None = None) -> torch.Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x), angles, bias))
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))


class Alibi(nn.Module):
    """A bias on the scores that falls with distance, at a slope of its own for each head."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        power = 1 << (heads.bit_length() - 1)  # slopes fall evenly for the largest power of two ...
        even = [2.0 ** (-8 * head / power) for head in range(1, power + 1)]
        between = [2.0 ** (-4 * head / power) for head in range(1, 2 * (heads - power), 2)]  # ... and between them
        self.register_buffer("slopes", torch.tensor([*even, *between], dtype=torch.float32), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[1, head, query, key] for x[sample, sequence, hidden], with later places masked."""
        behind = distances(x.shape[1], x.device)
        bias = self.slopes[:, None, None] * -behind
        return bias.masked_fill_(behind < 0, -torch.inf).to(x.dtype)[None]


class GptModule(nn.Module):
    """Tokens to the logits of the next token."""

    def __init__(self, fields: Gpt) -> None:
        super().__init__()
        self.embedding = nn.Embedding(fields.vocab, fields.hidden)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.offset = fields.position_offset
        learned = fields.positions == "learned"
        self.position = nn.Embedding(fields.seq + self.offset, fields.hidden) if learned else None
        rotary = fields.positions == "rotary"
        self.rotary = RotaryTable(fields.rotary_features, fields.seq) if rotary else None
        self.alibi = Alibi(fields.heads) if fields.positions == "alibi" else None
        self.embedding_norm = nn.LayerNorm(fields.hidden) if fields.embedding_norm else None
        self.dropout = nn.Dropout(fields.dropout)
        self.layers = nn.ModuleList(GptLayer(fields) for _ in range(fields.layers))
        self.norm = nn.LayerNorm(fields.hidden)
        self.head = nn.Linear(fields.hidden, fields.vocab, bias=False)
        if fields.tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        sequence = tokens.shape[1]
        x = self.embedding(tokens)
        if self.position is not None:
            x = x + self.position(torch.arange(self.offset, self.offset + sequence, device=tokens.device))
        if self.embedding_norm is not None:
            x = self.embedding_norm(x)
        x = self.dropout(x)
        angles = None if self.rotary is None else self.rotary(sequence)
        bias = None if self.alibi is None else self.alibi(x)
        for layer in self.layers:
            x = layer(x, angles, bias)
        return self.head(self.norm(x))


def module(fields: Gpt) -> nn.Module:
    return GptModule(fields)


def example(fields: Gpt, batch: int) -> Example:
    return tokens(batch, fields.seq, fields.vocab)
