"""The inside of attention runs again: scores, probabilities and their dropout."""

from __future__ import annotations

from foretell.model.graph import Node
from foretell.model.operators.attention import Attention
from foretell.plan.recomputation import Recomputation, Saving


class InsideAttention(Recomputation, frozen=True):
    summary = "all is saved but the inside of attention (scores, probabilities, their dropout)"
    references = ("Korthikanti et al. 2022 (selective recomputation), arXiv 2205.05198",)
    place = 10
    joins = True
    modules = ("core_attn",)

    def saving(self, node: Node, in_layer: bool) -> Saving:
        return Saving.INSIDE if isinstance(node.operator, Attention) else Saving.SAVE


RECOMPUTATION = InsideAttention()
