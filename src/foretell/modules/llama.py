"""Llama, Mistral and Qwen as PyTorch modules."""

from __future__ import annotations

import torch
from torch import nn

from foretell.model.zoo.llama import Llama
from foretell.modules._decoder import DecoderLayer, DecoderModule, GatedFeedForward, causal_attention
from foretell.modules._normalization import RMSNorm
from foretell.modules._rotary import Angles, rotate
from foretell.modules.task import Example, tokens


class GroupedQueryAttention(nn.Module):
    """Causal attention in which groups of query heads share a key and value head."""

    def __init__(self, fields: Llama) -> None:
        super().__init__()
        self.head_dim = fields.size
        self.kernel = fields.attention
        inner, shared = fields.heads * fields.size, fields.shared_heads * fields.size
        self.query = nn.Linear(fields.hidden, inner, bias=fields.qkv_bias)
        self.key = nn.Linear(fields.hidden, shared, bias=fields.qkv_bias)
        self.value = nn.Linear(fields.hidden, shared, bias=fields.qkv_bias)
        self.query_norm = RMSNorm(fields.size) if fields.qk_norm else nn.Identity()
        self.key_norm = RMSNorm(fields.size) if fields.qk_norm else nn.Identity()
        self.output = nn.Linear(inner, fields.hidden, bias=False)

    def forward(self, x: torch.Tensor, angles: Angles, bias: torch.Tensor | None = None) -> torch.Tensor:
        heads = (-1, self.head_dim)
        query = self.query_norm(self.query(x).unflatten(-1, heads)).transpose(1, 2)
        key = self.key_norm(self.key(x).unflatten(-1, heads)).transpose(1, 2)
        value = self.value(x).unflatten(-1, heads).transpose(1, 2)
        return self.output(causal_attention(rotate(query, angles), rotate(key, angles), value, self.kernel, bias))


def module(fields: Llama) -> nn.Module:
    def layer(_: int) -> DecoderLayer:
        feed_forward = GatedFeedForward(fields.hidden, fields.inner)
        return DecoderLayer(fields.hidden, GroupedQueryAttention(fields), feed_forward)

    return DecoderModule(fields, layer, fields.window)


def example(fields: Llama, batch: int) -> Example:
    return tokens(batch, fields.seq, fields.vocab)
