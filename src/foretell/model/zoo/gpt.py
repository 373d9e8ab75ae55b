"""GPT and those built like it (GPT-3, Megatron, OPT, BLOOM, Nemotron): pre-norm layers, one qkv product.

Differences are fields: `positions` learned, alibi (a bias on the scores that falls with distance),
rotary or none; the activation; tied or own output weights. opt-350m is left out: it alone has
post-norm layers and projects its embedding.
"""

from __future__ import annotations

from typing import ClassVar

from foretell.model.attention import ATTENTIONS
from foretell.model.build import Builder, Value, dims
from foretell.model.dims import Dim
from foretell.model.family import Count, Family, Index, Rate
from foretell.model.operators.broadcast import broadcast
from foretell.model.operators.dropout import dropout
from foretell.model.operators.elementwise import activation, combine
from foretell.model.operators.embedding import embedding
from foretell.model.operators.layout import split
from foretell.model.operators.matmul import linear
from foretell.model.operators.normalization import layer_norm
from foretell.model.operators.rotary import rotary
from foretell.model.zoo._decoder import (
    LayerContext,
    causal_attention,
    check_angles,
    check_heads,
    gated_feed_forward,
    heads_outside,
    language_loss,
    one_of,
    rotary_angles,
    score_mask,
)
from foretell.model.zoo._encoder import head_size
from foretell.model.zoo._task import tokens

POSITIONS = ("learned", "alibi", "rotary", "none")
ACTIVATIONS: dict[str, tuple[str, ...]] = {
    "gelu": ("gelu",),
    "gelu_tanh": ("gelu_tanh",),
    "relu": ("relu",),
    "squared_relu": ("relu", "square"),
    "silu": ("silu",),
}


class Gpt(Family, frozen=True, kw_only=True):
    """Zero stands for the usual: `ffn` 4 hidden, `kv_heads` all heads, `head_dim` hidden / heads.

    `rotary_dim` features of a head turn with the position (0: all of them); `position_offset` rows
    lie before the first learned position; `bias` is that of the dense layers (norms always have one).
    """

    references: ClassVar[tuple[str, ...]] = (
        "Radford et al. 2019 (GPT-2)",
        "Brown et al. 2020 (GPT-3), arXiv 2005.14165",
        "Shoeybi et al. 2019 (Megatron-LM), arXiv 1909.08053",
        "Narayanan et al. 2021 (Megatron-LM), arXiv 2104.04473",
        "Korthikanti et al. 2022, arXiv 2205.05198",
        "Zhang et al. 2022 (OPT), arXiv 2205.01068",
        "BigScience 2022 (BLOOM), arXiv 2211.05100",
        "Parmar et al. 2024 (Nemotron-4 15B), arXiv 2402.16819",
        "NVIDIA 2024 (Nemotron-4 340B), arXiv 2406.11704",
    )

    layers: Count = 12
    hidden: Count = 768
    heads: Count = 12
    kv_heads: Index = 0
    head_dim: Index = 0
    ffn: Index = 0
    vocab: Count = 50257
    seq: Count = 1024
    positions: str = "learned"
    position_offset: Index = 0
    rotary_dim: Index = 0
    activation: str = "gelu_tanh"
    gated: bool = False
    embedding_norm: bool = False
    tied: bool = True
    bias: bool = True
    dropout: Rate = 0.0
    attention: str = "flash"

    def check(self) -> None:
        one_of("positions", self.positions, POSITIONS)
        one_of("activation", self.activation, tuple(ACTIVATIONS))
        one_of("attention", self.attention, tuple(ATTENTIONS))
        check_heads(self.heads, self.shared_heads)
        if self.positions == "rotary":
            check_angles(self.rotary_features, self.size)

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
        """Features between the layers of the feed-forward."""
        return self.ffn or 4 * self.hidden

    @property
    def rotary_features(self) -> int:
        """How many features of a head turn with the position."""
        return self.rotary_dim or self.size

    def build(self, g: Builder, batch: int) -> None:
        x, table = self._embed(g, batch)
        context = self._context(g)
        for layer in range(self.layers):
            with g.scope(f"layers.{layer}"):
                x = self._layer(g, x, context)
        with g.scope("norm"):
            x = layer_norm(g, x)
        language_loss(g, x, self.vocab, table if self.tied else None)

    def _embed(self, g: Builder, batch: int) -> tuple[Value, Value]:
        hidden = dims(hidden=self.hidden)
        with g.scope("embedding"):
            table = g.parameter("weight", dims(vocab=self.vocab, hidden=self.hidden))
            x = embedding(g, tokens(g, batch, self.seq), self.vocab, hidden, weight=table)
        if self.positions == "learned":
            with g.scope("position"):
                rows = self.seq + self.position_offset
                places = g.input("positions", dims(sequence=self.seq), "int64")
                learned = g.parameter("weight", dims(position=rows, hidden=self.hidden))
                x = broadcast(g, x, embedding(g, places, rows, hidden, weight=learned), "add")
        if self.embedding_norm:
            with g.scope("embedding_norm"):
                x = layer_norm(g, x)
        return dropout(g, x, self.dropout), table

    def _context(self, g: Builder) -> LayerContext:
        if self.positions == "rotary":
            return LayerContext(rotary_angles(g, self.seq, self.rotary_features))
        if self.positions == "alibi":
            with g.scope("alibi"):
                heads = Dim("head", self.heads)
                slopes = g.buffer("slopes", (heads,), "fp32")
                return LayerContext(bias=score_mask(g, slopes, heads, sequence=self.seq))
        return LayerContext()

    def _layer(self, g: Builder, x: Value, context: LayerContext) -> Value:
        with g.scope("attention_norm"):
            y = layer_norm(g, x)
        with g.scope("attention"):
            y = self._attend(g, y, context)
        x = combine(g, x, dropout(g, y, self.dropout))
        with g.scope("feed_forward_norm"):
            y = layer_norm(g, x)
        with g.scope("feed_forward"):
            y = self._feed_forward(g, y)
        return combine(g, x, dropout(g, y, self.dropout))

    def _attend(self, g: Builder, x: Value, context: LayerContext) -> Value:
        heads = (self.heads, self.shared_heads, self.shared_heads)
        with g.scope("qkv"):
            qkv = linear(g, x, dims(head=sum(heads), head_dim=self.size), bias=self.bias)
        q, k, v = (heads_outside(g, part) for part in split(g, qkv, "head", heads))
        if context.angles:
            q, k = rotary(g, q, *context.angles), rotary(g, k, *context.angles)
        y = causal_attention(g, q, k, v, kernel=self.attention, bias=context.bias, dropout=self.dropout)
        with g.scope("output"):
            return linear(g, y, x.dims[-1:], contract=2, bias=self.bias)

    def _feed_forward(self, g: Builder, x: Value) -> Value:
        functions = ACTIVATIONS[self.activation]
        if self.gated:
            return gated_feed_forward(g, x, self.inner, functions, bias=self.bias)
        with g.scope("up"):
            y = linear(g, x, dims(ffn=self.inner), bias=self.bias)
        for function in functions:
            y = activation(g, y, function)
        with g.scope("down"):
            return linear(g, y, x.dims[-1:], bias=self.bias)


def _gpt3(layers: int, hidden: int, heads: int) -> Gpt:
    return Gpt(layers=layers, hidden=hidden, heads=heads, seq=2048)


def _megatron(layers: int, hidden: int, heads: int, seq: int = 2048) -> Gpt:
    """The vocabulary is padded so that it divides over ranks."""
    return Gpt(layers=layers, hidden=hidden, heads=heads, vocab=51200, seq=seq)


def _opt(layers: int, hidden: int, heads: int) -> Gpt:
    """The position table has two rows before the first position."""
    return Gpt(
        layers=layers, hidden=hidden, heads=heads, vocab=50272, seq=2048, position_offset=2, activation="relu"
    )  # fmt: skip


def _bloom(layers: int, hidden: int, heads: int) -> Gpt:
    return Gpt(
        layers=layers, hidden=hidden, heads=heads, vocab=250880, seq=2048, positions="alibi", embedding_norm=True,
        attention="efficient",
    )  # fmt: skip


def _nemotron(layers: int, hidden: int, heads: int) -> Gpt:
    """Half of each head turns with the position."""
    return Gpt(
        layers=layers, hidden=hidden, heads=heads, kv_heads=8, vocab=256000, seq=4096, positions="rotary",
        rotary_dim=hidden // heads // 2, activation="squared_relu", bias=False, tied=False,
    )  # fmt: skip


PRESETS = {
    "gpt": Gpt(),
    "gpt2": Gpt(),
    "gpt2-medium": Gpt(layers=24, hidden=1024, heads=16),
    "gpt2-large": Gpt(layers=36, hidden=1280, heads=20),
    "gpt2-xl": Gpt(layers=48, hidden=1600, heads=25),
    # Table 2.1 prints 24 heads of 128 for 1.3B and a width of 5140 for 13B, which fit neither the
    # width nor the parameter counts of Table D.1; these do
    "gpt3-125m": _gpt3(12, 768, 12),
    "gpt3-350m": _gpt3(24, 1024, 16),
    "gpt3-760m": _gpt3(24, 1536, 16),
    "gpt3-1.3b": _gpt3(24, 2048, 16),
    "gpt3-2.7b": _gpt3(32, 2560, 32),
    "gpt3-6.7b": _gpt3(32, 4096, 32),
    "gpt3-13b": _gpt3(40, 5120, 40),
    "gpt3-175b": _gpt3(96, 12288, 96),
    "megatron-1.2b": _megatron(40, 1536, 16, seq=1024),
    "megatron-2.5b": _megatron(54, 1920, 20, seq=1024),
    "megatron-4.2b": _megatron(64, 2304, 24, seq=1024),
    "megatron-8.3b": _megatron(72, 3072, 32, seq=1024),
    "turing-nlg-17b": _megatron(78, 4256, 28, seq=1024),
    "megatron-1.7b": _megatron(24, 2304, 24),
    "megatron-3.6b": _megatron(30, 3072, 32),
    "megatron-7.5b": _megatron(36, 4096, 32),
    "megatron-18b": _megatron(40, 6144, 48),
    "megatron-22b": _megatron(48, 6144, 64),
    "megatron-39b": _megatron(48, 8192, 64),
    "megatron-76b": _megatron(60, 10240, 80),
    "megatron-145b": _megatron(80, 12288, 96),
    "megatron-310b": _megatron(96, 16384, 128),
    "megatron-530b": _megatron(105, 20480, 128),
    "megatron-1t": _megatron(128, 25600, 160),
    "opt-125m": _opt(12, 768, 12),
    "opt-1.3b": _opt(24, 2048, 32),
    "opt-2.7b": _opt(32, 2560, 32),
    "opt-6.7b": _opt(32, 4096, 32),
    "opt-13b": _opt(40, 5120, 40),
    "opt-30b": _opt(48, 7168, 56),
    "opt-66b": _opt(64, 9216, 72),
    "opt-175b": _opt(96, 12288, 96),
    "bloom-560m": _bloom(24, 1024, 16),
    "bloom-1b1": _bloom(24, 1536, 16),
    "bloom-1b7": _bloom(24, 2048, 16),
    "bloom-3b": _bloom(30, 2560, 32),
    "bloom-7b1": _bloom(30, 4096, 32),
    "bloom-176b": _bloom(70, 14336, 112),
    "nemotron4-15b": _nemotron(32, 6144, 48),
    "nemotron4-340b": _nemotron(96, 18432, 96),
}
