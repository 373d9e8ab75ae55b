"""Queries, keys and values of a latent attention are made again from their latents: products up, norms, positions."""

from __future__ import annotations

from collections.abc import Sequence

from foretell.model.graph import Node
from foretell.model.operators.attention import Attention
from foretell.plan.recomputations._modules import DOWN, Indices, ModulesAgain, attention_modules, latent


class LatentUp(ModulesAgain, frozen=True):
    summary = "all is saved but queries, keys and values of a latent attention, whose latents are"
    references = ("Megatron-Core 0.15, megatron/core/transformer/multi_latent_attention.py: recompute_up_proj",)
    place = 13
    modules = ("mla_up_proj",)

    def again(self, nodes: Sequence[Node]) -> Indices:
        if not latent(nodes):
            return set()
        attends = next(index for index, node in enumerate(nodes) if isinstance(node.operator, Attention))
        inside = {index for own in attention_modules(nodes) for index in own if index < attends}
        return {index for index in inside if not nodes[index].path.endswith(DOWN)}


RECOMPUTATION = LatentUp()
