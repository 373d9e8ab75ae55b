"""f(gate) * up of gated feed-forward parts runs again: its output, which a product reads, is dropped."""

from __future__ import annotations

from collections.abc import Sequence

from foretell.model.graph import Node
from foretell.plan.recomputations._modules import PRODUCTS, Indices, ModulesAgain, below


class GatedActivations(ModulesAgain, frozen=True):
    """Of dense parts, experts and shared experts alike."""

    summary = "all is saved but the outputs of SwiGLU"
    references = ("DeepSeek-AI 2024 (DeepSeek-V3), arXiv 2412.19437, section 3.2.3",)
    place = 14

    def again(self, nodes: Sequence[Node]) -> Indices:
        made = {number: index for index, node in enumerate(nodes) for number in node.outputs}
        found: Indices = set()
        for index, node in enumerate(nodes):
            before = [made[operand.tensor] for operand in node.inputs if operand.tensor in made]
            gates = [at for at in before if _acts(nodes[at]) and _multiplied(nodes[at], nodes, made)]
            if _multiplies(node) and gates and any(nodes[at].kind in PRODUCTS for at in before):
                found |= {index, *gates}
        return found


def _acts(node: Node) -> bool:
    return node.kind == "elementwise" and len(node.inputs) == 1 and len(below(node)) > 0


def _multiplies(node: Node) -> bool:
    return node.kind == "elementwise" and getattr(node.operator, "function", "") == "multiply"


def _multiplied(node: Node, nodes: Sequence[Node], made: dict[int, int]) -> bool:
    """Whether a product made what it reads."""
    return any(nodes[made[one.tensor]].kind in PRODUCTS for one in node.inputs if one.tensor in made)


RECOMPUTATION = GatedActivations()
