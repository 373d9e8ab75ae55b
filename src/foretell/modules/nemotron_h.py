"""Nemotron-H as a PyTorch module."""

from __future__ import annotations

import torch
from torch import nn

from foretell.model.zoo.nemotron_h import NemotronH
from foretell.modules._state_space import StateSpaceLayer
from foretell.modules.llama import GroupedQueryAttention
from foretell.modules.mamba2 import MixerModule
from foretell.modules.task import Example, tokens


class UnplacedAttention(GroupedQueryAttention):
    """Attention that is told no positions."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().forward(x, (x, x))


class SquaredFeedForward(nn.Module):
    """down(relu(up(x))^2)."""

    def __init__(self, hidden: int, ffn: int) -> None:
        super().__init__()
        self.up = nn.Linear(hidden, ffn, bias=False)
        self.down = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.up(x).relu().square())


def module(fields: NemotronH) -> nn.Module:
    def mixer(at: int) -> nn.Module:
        if fields.kind(at) == "M":
            return StateSpaceLayer(fields.hidden, fields.sizes)
        if fields.kind(at) == "*":
            return UnplacedAttention(fields, at)
        return SquaredFeedForward(fields.hidden, fields.inner)

    return MixerModule(fields.vocab, fields.hidden, fields.layers, mixer, tied=fields.tied)


def example(fields: NemotronH, batch: int) -> Example:
    return tokens(batch, fields.seq, fields.vocab)
