"""Mixtures of experts on Llama's frame as PyTorch modules."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from foretell.model.zoo.mixture import Mixture
from foretell.modules._decoder import DecoderLayer, DecoderModule, GatedFeedForward
from foretell.modules._experts import ExpertFeedForward
from foretell.modules.llama import GroupedQueryAttention
from foretell.modules.task import Example, tokens


def module(fields: Mixture, attention: Callable[[Mixture, int], nn.Module] = GroupedQueryAttention) -> nn.Module:
    """The model, with attention that a family on its frame may have of its own."""

    def layer(at: int) -> DecoderLayer:
        if not fields.has_experts(at):
            dense = GatedFeedForward(fields.hidden, fields.dense_ffn)
            return DecoderLayer(fields.hidden, attention(fields, at), dense)
        experts = ExpertFeedForward(
            fields.hidden,
            fields.inner,
            fields.routing,
            fields.shared_ffn,
            fields.shared_gate,
            biased=fields.expert_bias,
        )
        return DecoderLayer(fields.hidden, attention(fields, at), experts)

    return DecoderModule(fields, layer, fields.window if fields.masked else 0)


def example(fields: Mixture, batch: int) -> Example:
    return tokens(batch, fields.seq, fields.vocab)
