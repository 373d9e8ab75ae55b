"""Selective activation checkpointing by operator, torchtitan's default: dear outputs are saved, the rest runs again."""

from __future__ import annotations

from collections.abc import Sequence

from foretell.model.graph import Node
from foretell.model.operators.attention import Attention
from foretell.plan.recomputation import Recomputation, Saving


class ByOperator(Recomputation, frozen=True):
    """Attention and every other product without a bias (`aten.mm`), the first among them; those with one are another
    operator (`aten.addmm`) and all saved. Those of experts (`_grouped_mm`) and of their router run again."""

    summary = "outputs of attention and of every other product are saved; the rest of a layer runs again at once"
    references = (
        "torchtitan 0.3.0, torchtitan/distributed/activation_checkpoint.py: SelectiveAC, _get_default_save_ops",
    )
    place = 25
    searched = False  # where a trainer offers it by name
    at_once = True
    saves_sums = True
    asks_each = True

    def savings(self, nodes: Sequence[Node], in_layer: bool) -> list[Saving]:
        if not in_layer:
            return [Saving.SAVE] * len(nodes)
        found: list[Saving] = []
        products = 0
        for node in nodes:
            saved = isinstance(node.operator, Attention)
            if node.kind == "matmul" and "router" not in node.path:
                biased = any(operand.name == "b" for operand in node.inputs)
                products += not biased
                saved = biased or products % 2 == 1
            found.append(Saving.SAVE if saved else Saving.AGAIN)
        return found


RECOMPUTATION = ByOperator()
