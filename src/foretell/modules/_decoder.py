"""What the modules of decoder language models share; the counterpart of `foretell.model.zoo._decoder`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from foretell.model.attention import attention_kernel
from foretell.model.zoo._decoder import Decoder
from foretell.modules._encoder import scores_written_out
from foretell.modules._local import local_attention
from foretell.modules._normalization import RMSNorm
from foretell.modules._rotary import Angles, RotaryTable

Kernel = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None, float], torch.Tensor]
"""Attention of queries to keys and values under a bias, with dropout; instead of one of torch's kernels."""


def distances(sequence: int, device: torch.device) -> torch.Tensor:
    """How far each place (row) is behind each other place (column); negative for later ones."""
    places = torch.arange(sequence, device=device)
    return places[:, None] - places


def mask_of(seen: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A bias on the scores: zero where a place is seen, minus infinity where it is not."""
    return torch.zeros_like(seen, dtype=like.dtype).masked_fill_(~seen, -torch.inf)


def causal_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    kernel: str | Kernel,
    bias: torch.Tensor | None = None,
    dropout: float = 0.0,
) -> torch.Tensor:
    """Attention of [sample, head, sequence, head_dim] to earlier places, heads joined.

    A bias holds the mask too. Fewer key and value heads are shared by groups of query heads: flash
    kernels do that themselves, for all others (fp32, a bias, scores written out) heads are repeated.
    A kernel that is a function is brought by those who have some of the places only.
    """
    groups = query.shape[1] // key.shape[1]
    if groups > 1 and not _shares_heads(query, kernel, bias):
        key, value = (part.unsqueeze(2).expand(-1, -1, groups, -1, -1).flatten(1, 2) for part in (key, value))
    attend = partial(attended, kernel) if isinstance(kernel, str) else kernel
    return attend(query, key, value, bias, dropout).transpose(1, 2).flatten(2)


def _shares_heads(query: torch.Tensor, kernel: str | Kernel, bias: torch.Tensor | None) -> bool:
    if isinstance(kernel, str) and attention_kernel(kernel).torch is not None:
        return attention_kernel(kernel).shares_heads
    if kernel == "local":
        return True
    return kernel != "math" and bias is None and query.dtype in (torch.bfloat16, torch.float16)


def attended(
    kernel: str,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor | None = None,
    dropout: float = 0.0,
) -> torch.Tensor:
    """Attention alone, by the kernel of this name."""
    own = attention_kernel(kernel).torch
    if own is not None:
        return own(query, key, value, bias, dropout)
    if kernel == "local":
        return local_attention(query, key, value)
    if kernel == "math":
        if bias is None:
            bias = mask_of(distances(query.shape[2], query.device) >= 0, query)
        return scores_written_out(query, key, value, bias, query.shape[-1] ** -0.5, dropout)
    shared = query.shape[1] > key.shape[1]
    return F.scaled_dot_product_attention(query, key, value, bias, dropout, bias is None, enable_gqa=shared)


class GatedFeedForward(nn.Module):
    """down(f(gate(x)) * up(x))."""

    def __init__(
        self, hidden: int, ffn: int, function: Callable[[torch.Tensor], torch.Tensor] = F.silu, bias: bool = False
    ) -> None:
        super().__init__()
        self.function = function
        self.gate = nn.Linear(hidden, ffn, bias=bias)
        self.up = nn.Linear(hidden, ffn, bias=bias)
        self.down = nn.Linear(ffn, hidden, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.function(self.gate(x)) * self.up(x))


class DecoderLayer(nn.Module):
    """Attention and feed-forward, each after an RMS norm and around a shortcut."""

    def __init__(self, hidden: int, attention: nn.Module, feed_forward: nn.Module) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(hidden)
        self.attention = attention
        self.feed_forward_norm = RMSNorm(hidden)
        self.feed_forward = feed_forward

    def forward(self, x: torch.Tensor, angles: Angles, bias: torch.Tensor | None = None) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), angles, bias)
        return x + self.feed_forward(self.feed_forward_norm(x))


class DecoderModule(nn.Module):
    """Tokens to the logits of the next token, through layers that a family makes."""

    def __init__(self, fields: Decoder, layer: Callable[[int], DecoderLayer], window: int = 0) -> None:
        super().__init__()
        self.window = window
        self.embedding = nn.Embedding(fields.vocab, fields.hidden)
        self.rotary = RotaryTable(fields.rotary_features, fields.seq, fields.theta)
        self.layers = nn.ModuleList(layer(at) for at in range(fields.layers))
        self.norm = RMSNorm(fields.hidden)
        self.head = nn.Linear(fields.hidden, fields.vocab, bias=False)
        nn.init.normal_(self.embedding.weight, std=0.02)
        if fields.tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.states(tokens, self.rotary(tokens.shape[1])))

    def states(self, tokens: torch.Tensor, angles: Angles) -> torch.Tensor:
        """What the head reads."""
        return self.through(self.embedding(tokens), angles)

    def through(self, x: torch.Tensor, angles: Angles) -> torch.Tensor:
        """What all layers and the last norm make of what is embedded."""
        bias = self._mask(x)
        for layer in self.layers:
            x = layer(x, angles, bias)
        return self.norm(x)

    def _mask(self, x: torch.Tensor) -> torch.Tensor | None:
        """The sliding window where it is narrower than the sequence; else plain causal attention will do."""
        if not 0 < self.window < x.shape[1]:
            return None
        behind = distances(x.shape[1], x.device)
        return mask_of((behind >= 0) & (behind < self.window), x)
