"""OLMo 2 as a PyTorch module."""

from __future__ import annotations

import torch
from torch import nn

from foretell.model.zoo.olmo2 import Olmo2
from foretell.modules._decoder import DecoderLayer, DecoderModule, GatedFeedForward
from foretell.modules._rotary import Angles
from foretell.modules.llama import GroupedQueryAttention
from foretell.modules.task import Example, tokens


class PostNormLayer(DecoderLayer):
    """Norms of what attention and feed-forward make, before it is added."""

    def forward(self, x: torch.Tensor, angles: Angles, bias: torch.Tensor | None = None) -> torch.Tensor:
        x = x + self.attention_norm(self.attention(x, angles, bias))
        return x + self.feed_forward_norm(self.feed_forward(x))


def module(fields: Olmo2) -> nn.Module:
    def layer(at: int) -> DecoderLayer:
        feed_forward = GatedFeedForward(fields.hidden, fields.inner)
        return PostNormLayer(fields.hidden, GroupedQueryAttention(fields, at), feed_forward)

    return DecoderModule(fields, layer, fields.window if fields.masked else 0)


def example(fields: Olmo2, batch: int) -> Example:
    return tokens(batch, fields.seq, fields.vocab)
