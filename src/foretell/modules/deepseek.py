"""DeepSeek as a PyTorch module."""

from __future__ import annotations

import torch
from torch import nn

from foretell.model.zoo.deepseek import DeepSeek
from foretell.modules._decoder import DecoderLayer, DecoderModule, GatedFeedForward, causal_attention
from foretell.modules._experts import ExpertFeedForward
from foretell.modules._further_tokens import FurtherToken, further_loss
from foretell.modules._normalization import RMSNorm
from foretell.modules._rotary import Angles, rotate
from foretell.modules._sparse import Index
from foretell.modules._sparse import attention as sparse_attention
from foretell.modules.task import Example, tokens


class LatentAttention(nn.Module):
    """Causal attention whose keys and values come from a small latent vector.

    A head's query and key have features of their own and features that turn with the position; all
    heads share one turning key.
    """

    def __init__(self, fields: DeepSeek) -> None:
        super().__init__()
        self.heads = fields.heads
        self.rank = fields.kv_rank
        self.parts = (fields.head_dim, fields.rotary_dim)
        self.kernel = fields.attention
        each = sum(self.parts)
        if fields.query_rank:
            self.query_down = nn.Linear(fields.hidden, fields.query_rank, bias=False)
            self.query_norm = RMSNorm(fields.query_rank)
        else:
            self.query_down = self.query_norm = nn.Identity()
        self.query = nn.Linear(fields.query_rank or fields.hidden, fields.heads * each, bias=False)
        self.kv_down = nn.Linear(fields.hidden, fields.kv_rank + fields.rotary_dim, bias=False)
        self.kv_norm = RMSNorm(fields.kv_rank)
        self.kv = nn.Linear(fields.kv_rank, fields.heads * (fields.head_dim + fields.value_dim), bias=False)
        self.output = nn.Linear(fields.heads * fields.value_dim, fields.hidden, bias=False)
        sizes = fields.index_heads, fields.index_dim, fields.index_top_k
        self.index = Index(fields.hidden, fields.query_rank, *sizes) if fields.index_heads else None

    def forward(self, x: torch.Tensor, angles: Angles, bias: torch.Tensor | None = None) -> torch.Tensor:
        latent = self.query_norm(self.query_down(x))
        query = self._query(latent, angles)
        key, value = self._key_and_value(x, angles)
        query, key, value = (part.transpose(1, 2) for part in (query, key, value))
        if self.index is not None:
            y, _ = sparse_attention(query, key, value, self.index(x, latent, angles))
            return self.output(y.transpose(1, 2).flatten(2))
        return self.output(causal_attention(query, key, value, self.kernel, bias))

    def _query(self, latent: torch.Tensor, angles: Angles) -> torch.Tensor:
        """[sample, sequence, head, head_dim]."""
        query = self.query(latent).unflatten(-1, (self.heads, -1))
        own, turning = query.split(self.parts, dim=-1)
        return torch.cat([own, _turned(turning, angles)], dim=-1)

    def _key_and_value(self, x: torch.Tensor, angles: Angles) -> tuple[torch.Tensor, torch.Tensor]:
        latent, turning = self.kv_down(x).split((self.rank, self.parts[1]), dim=-1)
        both = self.kv(self.kv_norm(latent)).unflatten(-1, (self.heads, -1))
        own, value = both.split((self.parts[0], both.shape[-1] - self.parts[0]), dim=-1)
        everywhere = _turned(turning[:, :, None], angles).expand(-1, -1, self.heads, -1)
        return torch.cat([own, everywhere], dim=-1), value


def _turned(x: torch.Tensor, angles: Angles) -> torch.Tensor:
    """x[sample, sequence, head, feature] turned with its position."""
    return rotate(x.transpose(1, 2), angles).transpose(1, 2)


def module(fields: DeepSeek) -> nn.Module:
    return SeveralTokens(fields) if fields.mtp else DecoderModule(fields, lambda at: DecoderLayer(*_parts(fields, at)))


def _parts(fields: DeepSeek, at: int) -> tuple[int, nn.Module, nn.Module]:
    """The width, attention and feed-forward of a layer."""
    if at < fields.first_dense:
        feed_forward: nn.Module = GatedFeedForward(fields.hidden, fields.ffn)
    else:
        shared = fields.shared_experts * fields.expert_ffn
        feed_forward = ExpertFeedForward(fields.hidden, fields.expert_ffn, fields.routing, shared)
    return fields.hidden, LatentAttention(fields), feed_forward


class SeveralTokens(DecoderModule):
    """Tokens to the logits of the next token, and in training to those of further ones too."""

    def __init__(self, fields: DeepSeek) -> None:
        super().__init__(fields, lambda at: DecoderLayer(*_parts(fields, at)))
        depths = range(1, fields.mtp + 1)
        self.mtp = nn.ModuleList(FurtherToken(*_parts(fields, fields.layers), depth) for depth in depths)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        angles = self.rotary(tokens.shape[1])
        states = [self.states(tokens, angles)]
        if self.training:
            for depth in self.mtp:
                states.append(depth(states[-1], tokens, self.embedding.weight, angles))
        logits = tuple(self.head(x) for x in states)
        return logits if self.training else logits[0]


def example(fields: DeepSeek, batch: int) -> Example:
    found = tokens(batch, fields.seq, fields.vocab)
    return found._replace(loss=further_loss) if fields.mtp else found
