"""Gemma 2 and 3: layers that look back on a window between layers that see everything, norms before and after.

Scores and logits of Gemma 2 go through soft caps, which no kernel of PyTorch but FlexAttention has. Gemma 3 has norms
on queries and keys instead, and turns positions of local and global layers by tables of their own. This is its
language model; the vision tower of the larger sizes is left out.
"""

from __future__ import annotations

from typing import ClassVar

from foretell.errors import BadInput
from foretell.model.attention import attention_kernel
from foretell.model.build import Builder, Value, dims
from foretell.model.family import Count, Index
from foretell.model.operators.attention import Locally, attention
from foretell.model.operators.elementwise import activation, combine
from foretell.model.operators.embedding import embedding
from foretell.model.operators.normalization import rms_norm
from foretell.model.zoo._decoder import LayerContext, gated_feed_forward, joined_heads, language_loss, rotary_angles
from foretell.model.zoo._task import tokens
from foretell.model.zoo.llama import Llama


class Gemma(Llama, frozen=True, kw_only=True):
    """`score_cap` and `logit_cap` are soft caps (0: none).

    `local_theta` is the base of local layers' angles (0: the same as of global ones).

    `query_scale` divides the scores, as a square (0: the features of a head).
    """

    references: ClassVar[tuple[str, ...]] = (
        "Gemma Team 2024 (Gemma 2), arXiv 2408.00118",
        "Gemma Team 2025 (Gemma 3), arXiv 2503.19786",
    )

    layers: Count = 26
    hidden: Count = 1152
    heads: Count = 4
    kv_heads: Index = 1
    head_dim: Index = 256
    ffn: Index = 6912
    vocab: Count = 262144
    seq: Count = 4096
    tied: bool = True
    theta: float = 1e6
    local_theta: float = 1e4
    window: Index = 512
    global_every: Index = 6
    qk_norm: bool = True
    attention: str = "local"
    score_cap: float = 0.0
    logit_cap: float = 0.0
    query_scale: Index = 0

    def check(self) -> None:
        super().check()
        if self.score_cap and not attention_kernel(self.attention).local:
            raise BadInput(
                f"the {self.attention} kernel has no soft caps on scores", fix="attention=local or score_cap=0"
            )

    def context(self, g: Builder) -> LayerContext:
        shared = super().context(g)
        if not self.local_theta:
            return shared
        return shared._replace(local_angles=rotary_angles(g, self.seq, self.rotary_features, "local_rotary"))

    def build(self, g: Builder, batch: int) -> None:
        with g.scope("embedding"):
            table = g.parameter("weight", dims(vocab=self.vocab, hidden=self.hidden))
            x = embedding(g, tokens(g, batch, self.seq), self.vocab, dims(hidden=self.hidden), weight=table)
        x = activation(g, x, "scale")
        context = self.context(g)
        for layer in range(self.layers):
            with g.scope(f"layers.{layer}"):
                x = self.layer(g, x, context, layer)
        with g.scope("norm"):
            x = rms_norm(g, x)
        language_loss(g, x, self.vocab, table if self.tied else None, capped=self.logit_cap > 0)

    def attend(self, g: Builder, x: Value, context: LayerContext, layer: int) -> Value:
        if context.local_angles and not self.is_global(layer):
            context = context._replace(angles=context.local_angles)
        return super().attend(g, x, context, layer)

    def attend_locally(self, g: Builder, parts: tuple[Value, Value, Value], window: int) -> Value:
        y = attention(g, *parts, causal=True, kernel=self.attention, locally=Locally(window, self.score_cap > 0))
        return joined_heads(g, y)

    def feed_forward(self, g: Builder, x: Value, layer: int) -> Value:
        return gated_feed_forward(g, x, self.inner, ("gelu_tanh",))

    def layer(self, g: Builder, x: Value, context: LayerContext, layer: int) -> Value:
        with g.scope("attention_norm"):
            y = rms_norm(g, x)
        with g.scope("attention"):
            y = self.attend(g, y, context, layer)
        with g.scope("attention_end_norm"):
            y = rms_norm(g, y)
        x = combine(g, x, y)
        with g.scope("feed_forward_norm"):
            y = rms_norm(g, x)
        with g.scope("feed_forward"):
            y = self.feed_forward(g, y, layer)
        with g.scope("feed_forward_end_norm"):
            y = rms_norm(g, y)
        return combine(g, x, y)


def _gemma2(
    layers: int, hidden: int, heads: int, kv_heads: int, ffn: int, head_dim: int = 256, scale: int = 0
) -> Gemma:
    return Gemma(
        layers=layers, hidden=hidden, heads=heads, kv_heads=kv_heads, head_dim=head_dim, ffn=ffn, vocab=256000,
        seq=8192, theta=1e4, local_theta=0, window=4096, global_every=2, qk_norm=False, score_cap=50, logit_cap=30,
        query_scale=scale,
    )  # fmt: skip


def _gemma3(
    layers: int, hidden: int, heads: int, kv_heads: int, ffn: int, head_dim: int = 256, scale: int = 0
) -> Gemma:
    return Gemma(
        layers=layers, hidden=hidden, heads=heads, kv_heads=kv_heads, head_dim=head_dim, ffn=ffn, vocab=262208,
        window=1024, query_scale=scale,
    )  # fmt: skip


PRESETS = {
    "gemma": Gemma(),
    "gemma2-2b": _gemma2(26, 2304, 8, 4, 9216),
    "gemma2-9b": _gemma2(42, 3584, 16, 8, 14336),
    "gemma2-27b": _gemma2(46, 4608, 32, 16, 36864, 128, 144),
    "gemma3-270m": Gemma(layers=18, hidden=640, ffn=2048),
    "gemma3-1b": Gemma(),
    "gemma3-4b": _gemma3(34, 2560, 8, 4, 10240),
    "gemma3-12b": _gemma3(48, 3840, 16, 8, 15360),
    "gemma3-27b": _gemma3(62, 5376, 32, 16, 21504, 128, 168),
}
