"""The activation between the products of experts runs again: its output, which the last product reads, is dropped."""

from __future__ import annotations

from collections.abc import Sequence

from foretell.model.graph import Node
from foretell.plan.recomputations._modules import EXPERTS, Indices, ModulesAgain


class ExpertActivation(ModulesAgain, frozen=True):
    summary = "all is saved but what the activation of experts makes of the first products"
    references = ("Megatron-Core 0.15, megatron/core/transformer/moe/experts.py: activation_checkpoint",)
    place = 12
    modules = ("moe_act",)

    def again(self, nodes: Sequence[Node]) -> Indices:
        products = [index for index, node in enumerate(nodes) if node.kind == EXPERTS]
        between = range(products[0], products[-1]) if products else range(0)
        return {index for index in between if nodes[index].kind == "elementwise"}


RECOMPUTATION = ExpertActivation()
