"""GPT-OSS as a PyTorch module."""

from __future__ import annotations

import torch
from torch import nn

from foretell.model.zoo.gpt_oss import GptOss
from foretell.modules import mixture
from foretell.modules._local import local_attention
from foretell.modules.llama import GroupedQueryAttention
from foretell.modules.task import Example, tokens


class SinkAttention(GroupedQueryAttention):
    """A score of each head that is in the softmax and has no value."""

    def __init__(self, fields: GptOss, layer: int) -> None:
        super().__init__(fields, layer)
        self.sink = nn.Parameter(torch.zeros(fields.heads))

    def attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        return local_attention(query, key, value, self.sink, window=self.window).transpose(1, 2).flatten(2)


def module(fields: GptOss) -> nn.Module:
    return mixture.module(fields, SinkAttention)


def example(fields: GptOss, batch: int) -> Example:
    return tokens(batch, fields.seq, fields.vocab)
