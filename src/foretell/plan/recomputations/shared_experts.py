"""The experts that all tokens go through run again."""

from __future__ import annotations

from collections.abc import Sequence

from foretell.model.graph import Node
from foretell.plan.recomputations._modules import Indices, ModulesAgain, below


class SharedAgain(ModulesAgain, frozen=True):
    summary = "all is saved but what lies inside the shared experts"
    references = ("Megatron-Core 0.15, megatron/core/transformer/moe/moe_layer.py: shared_experts_recompute",)
    place = 20
    modules = ("shared_experts",)

    def again(self, nodes: Sequence[Node]) -> Indices:
        shared = (any(part.startswith("shared") for part in below(node)) for node in nodes)
        return {index for index, one in enumerate(shared) if one}


RECOMPUTATION = SharedAgain()
