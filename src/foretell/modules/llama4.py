"""Llama 4 as a PyTorch module."""

from __future__ import annotations

import torch
from torch import nn

from foretell.model.zoo.llama4 import Llama4
from foretell.modules import mixture
from foretell.modules._normalization import rms_norm
from foretell.modules.llama import GroupedQueryAttention
from foretell.modules.task import Example, tokens


class TurnedNormAttention(GroupedQueryAttention):
    """Queries and keys of layers that turn are normalised after that, without weights."""

    def __init__(self, fields: Llama4, layer: int) -> None:
        super().__init__(fields, layer)
        self.normed = fields.head_norm and fields.turns(layer)

    def attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        if self.normed:
            query, key = rms_norm(query), rms_norm(key)
        return super().attend(query, key, value, bias)


def module(fields: Llama4) -> nn.Module:
    return mixture.module(fields, TurnedNormAttention)


def example(fields: Llama4, batch: int) -> Example:
    return tokens(batch, fields.seq, fields.vocab)
