"""The dense feed-forward part of a layer runs again; experts do not."""

from __future__ import annotations

from collections.abc import Sequence

from foretell.model.graph import Node
from foretell.plan.recomputations._modules import (
    EXPERTS,
    PRODUCTS,
    Indices,
    ModulesAgain,
    attention_modules,
    having,
)


class DenseAgain(ModulesAgain, frozen=True):
    summary = "all is saved but what lies inside the dense feed-forward part"
    references = ("Megatron-Core 0.15, megatron/core/transformer/transformer_layer.py: recompute_mlp, not of experts",)
    place = 30
    modules = ("mlp",)

    def again(self, nodes: Sequence[Node]) -> Indices:
        attends = list(attention_modules(nodes))
        other = [*attends, *having(nodes, (EXPERTS,))]
        first = min((min(own) for own in attends), default=0)  # what a layer does to its inputs is before
        return {index for own in having(nodes, PRODUCTS) if own not in other and min(own) >= first for index in own}


RECOMPUTATION = DenseAgain()
