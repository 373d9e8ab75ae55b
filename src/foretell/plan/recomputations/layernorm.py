"""The norms between the modules of a layer run again, where they are operators of their own."""

from __future__ import annotations

from collections.abc import Sequence

from foretell.model.graph import Node
from foretell.plan.recomputations._modules import EXPERTS, Indices, ModulesAgain, latent, norms


class FreeNorms(ModulesAgain, frozen=True):
    """Transformer Engine makes a norm and the dense product after it in one: only those before experts, and before the
    several products of a latent attention, stand alone (gpt_layer_specs.py)."""

    summary = "all is saved but the outputs of norms before experts and before latent attention"
    references = ("Megatron-Core 0.15, megatron/core/transformer/transformer_layer.py: recompute_input_layernorm",)
    place = 11
    modules = ("layernorm",)

    def again(self, nodes: Sequence[Node]) -> Indices:
        first, *rest = [*norms(nodes), -1]
        alone = [first] if latent(nodes) else []
        if any(node.kind == EXPERTS for node in nodes):
            alone += rest
        return set(alone) - {-1}


RECOMPUTATION = FreeNorms()
