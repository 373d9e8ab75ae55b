"""Gemma 2 and 3 as PyTorch modules."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from foretell.model.zoo.gemma import Gemma
from foretell.modules._decoder import DecoderLayer, DecoderModule, GatedFeedForward, causal_attention
from foretell.modules._local import local_attention
from foretell.modules._normalization import RMSNorm
from foretell.modules._rotary import Angles, RotaryTable
from foretell.modules.llama import GroupedQueryAttention
from foretell.modules.task import Example, tokens


class GemmaAttention(GroupedQueryAttention):
    """Scores over the square root of a number of its own, through a soft cap where the size has one."""

    def __init__(self, fields: Gemma, layer: int) -> None:
        super().__init__(fields, layer)
        self.cap = fields.score_cap
        self.square = fields.query_scale or fields.size

    def attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        if self.kernel != "local":
            stretch = (self.head_dim / self.square) ** 0.5
            return causal_attention(query if stretch == 1 else query * stretch, key, value, self.kernel, bias)
        scale = self.square**-0.5
        y = local_attention(query, key, value, window=self.window, cap=self.cap, scale=scale)
        return y.transpose(1, 2).flatten(2)


class GemmaLayer(DecoderLayer):
    """Norms before and after attention and feed-forward, inside the shortcuts."""

    def __init__(self, fields: Gemma, at: int) -> None:
        gelu = partial(F.gelu, approximate="tanh")
        feed_forward = GatedFeedForward(fields.hidden, fields.inner, gelu)
        super().__init__(fields.hidden, GemmaAttention(fields, at), feed_forward)
        self.attention_end_norm = RMSNorm(fields.hidden)
        self.feed_forward_end_norm = RMSNorm(fields.hidden)
        self.sees_all = fields.is_global(at)

    def forward(
        self, x: torch.Tensor, angles: Angles, bias: torch.Tensor | None = None, local_angles: Angles | None = None
    ) -> torch.Tensor:
        angles = angles if local_angles is None or self.sees_all else local_angles
        x = x + self.attention_end_norm(self.attention(self.attention_norm(x), angles, bias))
        return x + self.feed_forward_end_norm(self.feed_forward(self.feed_forward_norm(x)))


class GemmaModule(DecoderModule):
    """Token vectors times the root of their length; logits through a soft cap where the size has one."""

    def __init__(self, fields: Gemma) -> None:
        super().__init__(fields, partial(GemmaLayer, fields), fields.window if fields.masked else 0)
        self.scale = fields.hidden**0.5
        self.cap = fields.logit_cap
        self.local_rotary = None
        if fields.local_theta:
            self.local_rotary = RotaryTable(fields.rotary_features, fields.seq, fields.local_theta)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens) * self.scale
        angles, bias = self.rotary(tokens.shape[1]), self._mask(x)
        local_angles = None if self.local_rotary is None else self.local_rotary(tokens.shape[1])
        for layer in self.layers:
            x = layer(x, angles, bias, local_angles)
        logits = self.head(self.norm(x))
        return (logits / self.cap).tanh() * self.cap if self.cap else logits


def module(fields: Gemma) -> nn.Module:
    return GemmaModule(fields)


def example(fields: Gemma, batch: int) -> Example:
    return tokens(batch, fields.seq, fields.vocab)
