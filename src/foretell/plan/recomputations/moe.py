"""The whole mixture of experts of a layer runs again: router, messages, experts."""

from __future__ import annotations

from collections.abc import Sequence

from foretell.model.graph import Node
from foretell.plan.recomputations._modules import EXPERTS, Indices, ModulesAgain, having


class MixtureAgain(ModulesAgain, frozen=True):
    summary = "all is saved but what lies inside the mixture of experts; its messages travel again"
    references = ("Megatron-Core 0.15, megatron/core/transformer/moe/moe_layer.py: moe_layer_recompute",)
    place = 35
    modules = ("moe",)

    def again(self, nodes: Sequence[Node]) -> Indices:
        return {index for own in having(nodes, (EXPERTS,)) for index in own}


RECOMPUTATION = MixtureAgain()
