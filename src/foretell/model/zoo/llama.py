"""Llama and those built like it (Mistral, Qwen): grouped queries, rotary positions, SwiGLU.

PyTorch's attention has no sliding window of its own. Where `seq` is longer than `window` the mask
is given as a bias, which its memory-efficient kernel takes and its flash kernel does not.
"""

from __future__ import annotations

from typing import ClassVar

from foretell.errors import BadInput
from foretell.model.attention import attention_kernel
from foretell.model.build import Builder, Value, dims
from foretell.model.family import Index
from foretell.model.operators.attention import Locally, attention
from foretell.model.operators.matmul import linear
from foretell.model.operators.normalization import rms_norm
from foretell.model.operators.rotary import rotary
from foretell.model.zoo._decoder import (
    Decoder,
    LayerContext,
    causal_attention,
    check_angles,
    check_heads,
    gated_feed_forward,
    heads_outside,
    joined_heads,
    score_mask,
)
from foretell.model.zoo._encoder import head_size


class Llama(Decoder, frozen=True, kw_only=True):
    """Zero stands for the usual: `kv_heads` all heads, `head_dim` hidden / heads, `ffn` 8/3 hidden.

    `window` is how many places a token looks back on (0: all), in all layers but every `global_every`th
    (0: in all of them). `qk_norm` is an RMS norm on the queries and keys of each head, `wide_norm` over all
    heads together. `rotary_dim` features of a head turn with the position (0: all).
    """

    references: ClassVar[tuple[str, ...]] = (
        "Touvron et al. 2023 (Llama), arXiv 2302.13971",
        "Touvron et al. 2023 (Llama 2), arXiv 2307.09288",
        "Grattafiori et al. 2024 (Llama 3), arXiv 2407.21783",
        "Jiang et al. 2023 (Mistral 7B), arXiv 2310.06825",
        "Yang et al. 2024 (Qwen2), arXiv 2407.10671",
        "Qwen 2025 (Qwen2.5), arXiv 2412.15115",
        "Yang et al. 2025 (Qwen3), arXiv 2505.09388",
    )

    kv_heads: Index = 0
    head_dim: Index = 0
    ffn: Index = 0
    qkv_bias: bool = False
    qk_norm: bool = False
    window: Index = 0
    global_every: Index = 0
    wide_norm: bool = False
    rotary_dim: Index = 0
    out_bias: bool = False

    def check(self) -> None:
        super().check()
        check_heads(self.heads, self.shared_heads)
        check_angles(self.rotary_features, self.size)
        if self.wide_norm and self.qk_norm:
            raise BadInput("qk_norm and wide_norm are two norms of the same", fix="one of them")

    @property
    def size(self) -> int:
        """Features of one head."""
        return self.head_dim or head_size(self.hidden, self.heads)

    @property
    def shared_heads(self) -> int:
        """Key and value heads."""
        return self.kv_heads or self.heads

    @property
    def inner(self) -> int:
        """Features between the layers of the feed-forward: by default Llama's rule, in steps of 256."""
        return self.ffn or -(-(self.hidden * 8 // 3) // 256) * 256

    @property
    def rotary_features(self) -> int:
        return self.rotary_dim or self.size

    @property
    def masked(self) -> bool:
        """Whether some earlier places are out of sight, and a bias on the scores says which."""
        return 0 < self.window < self.seq and not attention_kernel(self.attention).local

    def is_global(self, layer: int) -> bool:
        """Whether this layer sees all earlier places, whatever the window."""
        return self.global_every > 0 and (layer + 1) % self.global_every == 0

    def window_of(self, layer: int) -> int:
        """How far this layer looks back; 0 for all places there are."""
        return 0 if self.is_global(layer) or self.window >= self.seq else self.window

    def turns(self, layer: int) -> bool:
        """Whether queries and keys of this layer turn with the position."""
        return True

    def context(self, g: Builder) -> LayerContext:
        shared = super().context(g)
        if not self.masked:
            return shared
        with g.scope("window"):
            positions = g.input("positions", dims(sequence=self.seq), "int64")
            return shared._replace(bias=score_mask(g, positions, sequence=self.seq))

    def attend(self, g: Builder, x: Value, context: LayerContext, layer: int) -> Value:
        q, k, v = self.queries_keys_values(g, x, context, layer)
        window = self.window_of(layer)
        if attention_kernel(self.attention).local:
            y = self.attend_locally(g, (q, k, v), window)
        else:
            y = causal_attention(g, q, k, v, kernel=self.attention, bias=context.bias if window else None)
        with g.scope("output"):
            return linear(g, y, x.dims[-1:], contract=2, bias=self.out_bias)

    def attend_locally(self, g: Builder, parts: tuple[Value, Value, Value], window: int) -> Value:
        """Attention by a kernel that has windows."""
        return joined_heads(g, attention(g, *parts, causal=True, kernel=self.attention, locally=Locally(window)))

    def queries_keys_values(
        self, g: Builder, x: Value, context: LayerContext, layer: int
    ) -> tuple[Value, Value, Value]:
        """What attends, of x[sample, sequence, hidden], heads outside."""
        parts: list[Value] = []
        for name, heads in (("query", self.heads), ("key", self.shared_heads), ("value", self.shared_heads)):
            with g.scope(name):
                part = linear(g, x, dims(head=heads, head_dim=self.size), bias=self.qkv_bias)
            if self.qk_norm and name != "value":
                with g.scope(f"{name}_norm"):
                    part = rms_norm(g, part)
            if self.wide_norm and name != "value":
                with g.scope(f"{name}_norm"):
                    part = rms_norm(g, part, over=2)
            part = heads_outside(g, part)
            if context.angles and name != "value" and self.turns(layer):
                part = rotary(g, part, *context.angles)
            parts.append(part)
        return parts[0], parts[1], parts[2]

    def feed_forward(self, g: Builder, x: Value, layer: int) -> Value:
        return gated_feed_forward(g, x, self.inner)


def _llama2(layers: int, hidden: int, heads: int, kv_heads: int = 0, ffn: int = 0) -> Llama:
    return Llama(layers=layers, hidden=hidden, heads=heads, kv_heads=kv_heads, ffn=ffn, seq=4096)


def _llama3(layers: int, hidden: int, heads: int, ffn: int, *, tied: bool = False) -> Llama:
    return Llama(
        layers=layers, hidden=hidden, heads=heads, kv_heads=8, ffn=ffn, vocab=128256, seq=8192, tied=tied, theta=5e5
    )  # fmt: skip


def _qwen2(layers: int, hidden: int, heads: int, kv_heads: int, ffn: int, *, tied: bool = False) -> Llama:
    """The small ones share the token table with the output and do not pad it."""
    return Llama(
        layers=layers, hidden=hidden, heads=heads, kv_heads=kv_heads, ffn=ffn, seq=4096, qkv_bias=True, theta=1e6,
        vocab=151936 if tied else 152064, tied=tied,
    )  # fmt: skip


def _qwen3(layers: int, hidden: int, heads: int, ffn: int, *, tied: bool = False) -> Llama:
    return Llama(
        layers=layers, hidden=hidden, heads=heads, kv_heads=8, head_dim=128, ffn=ffn, vocab=151936, seq=4096,
        qk_norm=True, tied=tied, theta=1e6,
    )  # fmt: skip


_QWEN2 = {
    "0.5b": _qwen2(24, 896, 14, 2, 4864, tied=True),
    "1.5b": _qwen2(28, 1536, 12, 2, 8960, tied=True),
    "7b": _qwen2(28, 3584, 28, 4, 18944),
    "72b": _qwen2(80, 8192, 64, 8, 29568),
}

PRESETS = {
    "llama": Llama(),
    "llama-7b": Llama(),
    "llama-13b": Llama(layers=40, hidden=5120, heads=40),
    "llama-30b": Llama(layers=60, hidden=6656, heads=52),
    "llama-65b": Llama(layers=80, hidden=8192, heads=64),
    "llama2-7b": _llama2(32, 4096, 32),
    "llama2-13b": _llama2(40, 5120, 40),
    "llama2-70b": _llama2(80, 8192, 64, 8, 28672),
    "llama3-8b": _llama3(32, 4096, 32, 14336),
    "llama3-70b": _llama3(80, 8192, 64, 28672),
    "llama3-405b": _llama3(126, 16384, 128, 53248),
    "llama3.2-1b": _llama3(16, 2048, 32, 8192, tied=True),
    "llama3.2-3b": _llama3(28, 3072, 24, 8192, tied=True),
    "mistral-7b": Llama(kv_heads=8, ffn=14336, seq=4096, window=4096),
    **{f"qwen2-{size}": fields for size, fields in _QWEN2.items()},
    **{f"qwen2.5-{size}": fields for size, fields in _QWEN2.items()},
    "qwen2.5-3b": _qwen2(36, 2048, 16, 2, 11008, tied=True),
    "qwen2.5-14b": _qwen2(48, 5120, 40, 8, 13824),
    "qwen2.5-32b": _qwen2(64, 5120, 40, 8, 27648),
    "qwen3-0.6b": _qwen3(28, 1024, 16, 3072, tied=True),
    "qwen3-1.7b": _qwen3(28, 2048, 16, 6144, tied=True),
    "qwen3-4b": _qwen3(36, 2560, 32, 9728, tied=True),
    "qwen3-8b": _qwen3(36, 4096, 32, 12288),
    "qwen3-14b": _qwen3(40, 5120, 40, 17408),
    "qwen3-32b": _qwen3(64, 5120, 64, 25600),
}
