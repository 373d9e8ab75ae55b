"""The transformer for translation as a PyTorch module."""

from __future__ import annotations

import math

import torch
from torch import nn

from foretell.model.zoo.transformer import TranslationTransformer
from foretell.modules._encoder import FeedForward, MultiHeadAttention
from foretell.modules.task import Example, token_loss


def sines(length: int, hidden: int) -> torch.Tensor:
    """For each place and feature a sine or a cosine, from one period of 2 pi to 10,000 of them."""
    place = torch.arange(length).unsqueeze(1)
    rate = torch.exp(torch.arange(0, hidden, 2) * (-math.log(10000.0) / hidden))
    found = torch.zeros(length, hidden)
    found[:, 0::2] = torch.sin(place * rate)
    found[:, 1::2] = torch.cos(place * rate[: hidden // 2])
    return found


class TranslationBlock(nn.Module):
    """Attention, in the decoder also over the encoder's output, and feed-forward; a norm after each sum."""

    def __init__(self, fields: TranslationTransformer, decodes: bool) -> None:
        super().__init__()
        self.attention = self._attention(fields)
        self.attention_norm = nn.LayerNorm(fields.hidden)
        if decodes:
            self.cross_attention = self._attention(fields)
            self.cross_attention_norm = nn.LayerNorm(fields.hidden)
        self.feed_forward = FeedForward(fields.hidden, fields.ffn, "relu", fields.dropout)
        self.feed_forward_norm = nn.LayerNorm(fields.hidden)
        self.dropout = nn.Dropout(fields.dropout)

    @staticmethod
    def _attention(fields: TranslationTransformer) -> MultiHeadAttention:
        return MultiHeadAttention(fields.hidden, fields.heads, kernel="math", dropout=fields.dropout)

    def forward(
        self, x: torch.Tensor, future: torch.Tensor | None = None, memory: torch.Tensor | None = None
    ) -> torch.Tensor:
        x = self.attention_norm(x + self.dropout(self.attention(x, bias=future)))
        if memory is not None:
            x = self.cross_attention_norm(x + self.dropout(self.cross_attention(x, memory)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))


class TranslationStack(nn.Module):
    """The layers of the encoder or of the decoder."""

    def __init__(self, fields: TranslationTransformer, layers: int, decodes: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(TranslationBlock(fields, decodes) for _ in range(layers))
        length = fields.target_length
        future = torch.full((length, length), float("-inf")).triu(1) if decodes else None
        self.register_buffer("future", future, persistent=False)

    def forward(self, x: torch.Tensor, memory: torch.Tensor | None = None) -> torch.Tensor:
        future = None if self.future is None else self.future[: x.shape[1], : x.shape[1]]
        for layer in self.layers:
            x = layer(x, future, memory)
        return x


class TranslationModule(nn.Module):
    """Scores of the next token of the target, given the source and the target so far."""

    def __init__(self, fields: TranslationTransformer) -> None:
        super().__init__()
        self.shared = nn.Embedding(fields.vocab, fields.hidden)
        self.dropout = nn.Dropout(fields.dropout)
        self.encoder = TranslationStack(fields, fields.layers, decodes=False)
        self.decoder = TranslationStack(fields, fields.decoder_layers or fields.layers, decodes=True)
        self.head = nn.Linear(fields.hidden, fields.vocab, bias=False)
        nn.init.normal_(self.shared.weight, std=fields.hidden**-0.5)
        self.head.weight = self.shared.weight
        self.scale = fields.hidden**0.5
        self.register_buffer("places", sines(fields.seq, fields.hidden), persistent=False)
        self.register_buffer("target_places", sines(fields.target_length, fields.hidden), persistent=False)

    def _embed(self, tokens: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        return self.dropout(self.shared(tokens) * self.scale + places[: tokens.shape[1]])

    def forward(self, tokens: torch.Tensor, target_tokens: torch.Tensor) -> torch.Tensor:
        memory = self.encoder(self._embed(tokens, self.places))
        return self.head(self.decoder(self._embed(target_tokens, self.target_places), memory))


def module(fields: TranslationTransformer) -> nn.Module:
    return TranslationModule(fields)


def example(fields: TranslationTransformer, batch: int) -> Example:
    tokens = torch.randint(fields.vocab, (batch, fields.seq))
    target_tokens = torch.randint(fields.vocab, (batch, fields.target_length))
    return Example((tokens, target_tokens), torch.randint(fields.vocab, (batch, fields.target_length)), token_loss)
