"""Llama 4: one expert a token beside one for all, chunks of places, and layers without positions that see everything.

This is the language model; the vision tower is left out. Chunks are counted as windows: a token of a chunk sees half of
it in the mean, and one behind a window's width all of it, so that sequences of many chunks are counted too dear.
"""

from __future__ import annotations

from typing import ClassVar

from foretell.model.build import Builder, Value
from foretell.model.family import Count, Index
from foretell.model.operators.normalization import rms_norm
from foretell.model.zoo._decoder import LayerContext
from foretell.model.zoo.mixture import Mixture


class Llama4(Mixture, frozen=True, kw_only=True):
    """`window` is a chunk; `head_norm` a norm without weights on turned queries and keys of each head."""

    references: ClassVar[tuple[str, ...]] = ("Meta 2025 (Llama 4), its model cards and configurations",)

    layers: Count = 48
    hidden: Count = 5120
    heads: Count = 40
    kv_heads: Index = 8
    head_dim: Index = 128
    ffn: Index = 8192
    vocab: Count = 202048
    seq: Count = 4096
    theta: float = 5e5
    window: Index = 8192
    global_every: Index = 4
    head_norm: bool = True
    experts: Count = 16
    top_k: Count = 1
    score: str = "sigmoid"
    normalized: bool = False
    weigh_before: bool = True
    shared_ffn: Index = 8192

    def turns(self, layer: int) -> bool:
        return not self.is_global(layer)

    def queries_keys_values(
        self, g: Builder, x: Value, context: LayerContext, layer: int
    ) -> tuple[Value, Value, Value]:
        q, k, v = super().queries_keys_values(g, x, context, layer)
        if self.head_norm and self.turns(layer):
            q, k = rms_norm(g, q, affine=False), rms_norm(g, k, affine=False)
        return q, k, v


PRESETS = {
    "llama4": Llama4(),
    "llama4-scout": Llama4(),
    "llama4-maverick": Llama4(experts=128, every=2, dense_ffn=16384, head_norm=False),
}
