"""Mamba-2 as a PyTorch module."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from foretell.model.zoo.mamba2 import Mamba2
from foretell.modules._normalization import RMSNorm
from foretell.modules._state_space import StateSpaceLayer
from foretell.modules.task import Example, tokens


class MixerLayer(nn.Module):
    """Something after a norm and around a shortcut."""

    def __init__(self, hidden: int, mixer: nn.Module) -> None:
        super().__init__()
        self.norm = RMSNorm(hidden)
        self.mixer = mixer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mixer(self.norm(x))


class MixerModule(nn.Module):
    """Tokens to the logits of the next token, without positions."""

    def __init__(self, vocab: int, hidden: int, mixers: int, mixer: Callable[[int], nn.Module], *, tied: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.layers = nn.ModuleList(MixerLayer(hidden, mixer(at)) for at in range(mixers))
        self.norm = RMSNorm(hidden)
        self.head = nn.Linear(hidden, vocab, bias=False)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def module(fields: Mamba2) -> nn.Module:
    def mixer(_: int) -> nn.Module:
        return StateSpaceLayer(fields.hidden, fields.sizes)

    return MixerModule(fields.vocab, fields.hidden, fields.layers, mixer, tied=fields.tied)


def example(fields: Mamba2, batch: int) -> Example:
    return tokens(batch, fields.seq, fields.vocab)
