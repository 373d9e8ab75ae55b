"""Llama, Mistral and Qwen as PyTorch modules."""

from __future__ import annotations

import torch
from torch import nn

from foretell.model.attention import attention_kernel
from foretell.model.zoo.llama import Llama
from foretell.modules._decoder import DecoderLayer, DecoderModule, GatedFeedForward, Kernel, causal_attention
from foretell.modules._local import local_attention
from foretell.modules._normalization import RMSNorm
from foretell.modules._rotary import Angles, rotate
from foretell.modules.task import Example, tokens


class GroupedQueryAttention(nn.Module):
    """Causal attention in which groups of query heads share a key and value head."""

    def __init__(self, fields: Llama, layer: int = 0) -> None:
        super().__init__()
        self.head_dim = fields.size
        self.kernel: Kernel | str = fields.attention
        self.window = fields.window_of(layer)
        self.turns = fields.turns(layer)
        self.wide = fields.wide_norm
        inner, shared = fields.heads * fields.size, fields.shared_heads * fields.size
        self.query = nn.Linear(fields.hidden, inner, bias=fields.qkv_bias)
        self.key = nn.Linear(fields.hidden, shared, bias=fields.qkv_bias)
        self.value = nn.Linear(fields.hidden, shared, bias=fields.qkv_bias)
        normed = (inner, shared) if fields.wide_norm else (fields.size, fields.size)
        self.query_norm = RMSNorm(normed[0]) if fields.qk_norm or fields.wide_norm else nn.Identity()
        self.key_norm = RMSNorm(normed[1]) if fields.qk_norm or fields.wide_norm else nn.Identity()
        self.output = nn.Linear(inner, fields.hidden, bias=fields.out_bias)

    def forward(self, x: torch.Tensor, angles: Angles, bias: torch.Tensor | None = None) -> torch.Tensor:
        query = self._heads(self.query(x), self.query_norm)
        key = self._heads(self.key(x), self.key_norm)
        value = self._heads(self.value(x))
        if self.turns:
            query, key = rotate(query, angles), rotate(key, angles)
        return self.output(self.attend(query, key, value, bias if self.window else None))

    def attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """Attention with heads joined; a kernel that has windows needs no mask."""
        if isinstance(self.kernel, str) and attention_kernel(self.kernel).local:
            return local_attention(query, key, value, window=self.window).transpose(1, 2).flatten(2)
        return causal_attention(query, key, value, self.kernel, bias)

    def _heads(self, x: torch.Tensor, norm: nn.Module | None = None) -> torch.Tensor:
        """[sample, head, sequence, head_dim], normalised over each head or over all of them."""
        if norm is not None and self.wide:
            x = norm(x)
        x = x.unflatten(-1, (-1, self.head_dim))
        if norm is not None and not self.wide:
            x = norm(x)
        return x.transpose(1, 2)


def module(fields: Llama) -> nn.Module:
    def layer(at: int) -> DecoderLayer:
        feed_forward = GatedFeedForward(fields.hidden, fields.inner)
        return DecoderLayer(fields.hidden, GroupedQueryAttention(fields, at), feed_forward)

    return DecoderModule(fields, layer, fields.window if fields.masked else 0)


def example(fields: Llama, batch: int) -> Example:
    return tokens(batch, fields.seq, fields.vocab)
