"""Qwen3-Next as a PyTorch module."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from foretell.model.zoo.mixture import Mixture
from foretell.model.zoo.qwen3_next import Qwen3Next
from foretell.modules import mixture
from foretell.modules._decoder import causal_attention
from foretell.modules._delta_rule import DeltaRuleLayer
from foretell.modules._normalization import RMSNorm
from foretell.modules._rotary import Angles, rotate
from foretell.modules._state_space import ChannelConvolution
from foretell.modules.task import Example, tokens


class GatedAttention(nn.Module):
    """Causal attention with norms on queries and keys, each feature of its output times a gate."""

    def __init__(self, fields: Qwen3Next) -> None:
        super().__init__()
        self.head_dim, self.kernel = fields.size, fields.attention
        inner, shared = fields.heads * fields.size, fields.shared_heads * fields.size
        self.query = nn.Linear(fields.hidden, 2 * inner, bias=False)
        self.key = nn.Linear(fields.hidden, shared, bias=False)
        self.value = nn.Linear(fields.hidden, shared, bias=False)
        self.query_norm, self.key_norm = RMSNorm(fields.size), RMSNorm(fields.size)
        self.output = nn.Linear(inner, fields.hidden, bias=False)

    def forward(self, x: torch.Tensor, angles: Angles, bias: torch.Tensor | None = None) -> torch.Tensor:
        query, gate = self.query(x).unflatten(-1, (-1, 2 * self.head_dim)).chunk(2, dim=-1)
        key, value = (part(x).unflatten(-1, (-1, self.head_dim)) for part in (self.key, self.value))
        query, key = (norm(part).transpose(1, 2) for norm, part in ((self.query_norm, query), (self.key_norm, key)))
        y = causal_attention(rotate(query, angles), rotate(key, angles), value.transpose(1, 2), self.kernel)
        return self.output(y * gate.sigmoid().flatten(2))


class RuledLayer(nn.Module):
    """A short convolution, the gated delta rule, and a gated norm of each head."""

    def __init__(self, fields: Qwen3Next) -> None:
        super().__init__()
        self.keys = fields.rule_keys * fields.rule_key_dim
        self.values = fields.rule_heads * fields.rule_head_dim
        self.heads, self.shared = fields.rule_heads, fields.rule_keys
        self.input = nn.Linear(fields.hidden, 2 * self.keys + 2 * self.values, bias=False)
        self.steps = nn.Linear(fields.hidden, 2 * fields.rule_heads, bias=False)
        self.convolution = ChannelConvolution(2 * self.keys + self.values, fields.taps, bias=False)
        self.rule = DeltaRuleLayer(fields.rule_heads)
        self.norm = RMSNorm(fields.rule_head_dim)
        self.output = nn.Linear(self.values, fields.hidden, bias=False)

    def forward(self, x: torch.Tensor, angles: Angles, bias: torch.Tensor | None = None) -> torch.Tensor:
        mixed, gate = self.input(x).split((2 * self.keys + self.values, self.values), dim=-1)
        written, dt = self.steps(x).chunk(2, dim=-1)
        query, key, value = F.silu(self.convolution(mixed)).split((self.keys, self.keys, self.values), dim=-1)
        value, gate = (part.unflatten(-1, (self.heads, -1)) for part in (value, gate))
        y = self.norm(self.rule(self._repeated(query), self._repeated(key), value, dt, written.sigmoid()))
        return self.output((y * F.silu(gate)).flatten(2))

    def _repeated(self, x: torch.Tensor) -> torch.Tensor:
        x = x.unflatten(-1, (self.shared, -1))
        times = self.heads // self.shared
        return x[:, :, :, None].expand(-1, -1, -1, times, -1).flatten(2, 3) if times > 1 else x


def _mixing(fields: Mixture, at: int) -> nn.Module:
    assert isinstance(fields, Qwen3Next)
    return GatedAttention(fields) if fields.is_global(at) else RuledLayer(fields)


def module(fields: Qwen3Next) -> nn.Module:
    return mixture.module(fields, _mixing)


def example(fields: Qwen3Next, batch: int) -> Example:
    return tokens(batch, fields.seq, fields.vocab)
