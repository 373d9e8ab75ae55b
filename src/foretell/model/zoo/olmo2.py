"""OLMo 2: Llama's layers with the norms after attention and feed-forward, and norms over all queries and all keys."""

from __future__ import annotations

from typing import ClassVar

from foretell.model.build import Builder, Value
from foretell.model.family import Count, Index
from foretell.model.operators.elementwise import combine
from foretell.model.operators.normalization import rms_norm
from foretell.model.zoo._decoder import LayerContext
from foretell.model.zoo.llama import Llama


class Olmo2(Llama, frozen=True, kw_only=True):
    """What a layer reads is not normalised; what it adds is."""

    references: ClassVar[tuple[str, ...]] = ("OLMo Team 2024 (OLMo 2), arXiv 2501.00656",)

    vocab: Count = 100352
    seq: Count = 4096
    theta: float = 5e5
    ffn: Index = 11008
    wide_norm: bool = True

    def _layer(self, g: Builder, x: Value, context: LayerContext, layer: int) -> Value:
        with g.scope("attention"):
            y = self.attend(g, x, context, layer)
        with g.scope("attention_norm"):
            x = combine(g, x, rms_norm(g, y))
        with g.scope("feed_forward"):
            y = self.feed_forward(g, x, layer)
        with g.scope("feed_forward_norm"):
            return combine(g, x, rms_norm(g, y))


PRESETS = {
    "olmo2": Olmo2(),
    "olmo2-1b": Olmo2(layers=16, hidden=2048, heads=16, ffn=8192),
    "olmo2-7b": Olmo2(),
    "olmo2-13b": Olmo2(layers=40, hidden=5120, heads=40, ffn=13824),
    "olmo2-32b": Olmo2(layers=64, hidden=5120, heads=40, kv_heads=8, ffn=27648),
}
