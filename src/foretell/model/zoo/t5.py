"""T5: an encoder and a decoder whose attention learns a bias for every distance between tokens.

The bias needs a gradient. The flash kernel takes no bias at all; `math` (the default) writes the
scores out, as the published implementations do; `efficient` is PyTorch's fused kernel on GPUs.
"""

from __future__ import annotations

from typing import ClassVar

from foretell.errors import BadInput
from foretell.model.attention import attention_kernel
from foretell.model.build import Builder, Value, dims
from foretell.model.family import Count, Family, Index, Rate
from foretell.model.operators.dropout import dropout
from foretell.model.operators.elementwise import activation, combine, copy
from foretell.model.operators.embedding import embedding
from foretell.model.operators.layout import view
from foretell.model.operators.matmul import linear
from foretell.model.operators.normalization import rms_norm
from foretell.model.zoo._encoder import attend, check_activation
from foretell.model.zoo._task import class_loss


class T5(Family, frozen=True, kw_only=True):
    """`layers` of encoder and as many of decoder; `target_seq` tokens come out (0: as many as go in).

    The published first version has ReLU and one token table for everything; version 1.1 has a
    gate beside its GELU and a table of its own for the output.
    """

    references: ClassVar[tuple[str, ...]] = (
        "Raffel et al. 2020, arXiv 1910.10683",
        "Shazeer 2020 (the gated feed-forward of version 1.1), arXiv 2002.05202",
    )

    layers: Count = 12
    decoder_layers: Index = 0
    hidden: Count = 768
    heads: Count = 12
    head_dim: Count = 64
    ffn: Count = 3072
    vocab: Count = 32128
    seq: Count = 512
    target_seq: Index = 0
    buckets: Count = 32
    distance: Count = 128
    activation: str = "relu"
    gated: bool = False
    tied: bool = True
    dropout: Rate = 0.0
    attention: str = "math"

    def check(self) -> None:
        if not attention_kernel(self.attention).takes_bias:
            what = f"T5 adds a learned bias to its scores, and the {self.attention} kernel takes none"
            raise BadInput(what, fix="attention=math or attention=efficient")
        check_activation(self.activation)
        if self.buckets < 4 or self.distance <= self.buckets // 2:
            what = f"buckets={self.buckets} for distances up to distance={self.distance}"
            raise BadInput(what, fix="buckets=32,distance=128: at least 4 buckets, and a distance beyond half of them")

    @property
    def target_length(self) -> int:
        return self.target_seq or self.seq

    def build(self, g: Builder, batch: int) -> None:
        table = self._table(g, "shared")
        memory = self._stack(g, self._embed(g, "tokens", table, batch, self.seq), self.layers)
        x = self._embed(g, "target_tokens", table, batch, self.target_length)
        x = self._stack(g, x, self.decoder_layers or self.layers, memory)
        with g.scope("head"):
            if self.tied:
                x = activation(g, x, "scale")  # the table is too large for an output layer as it is
            x = linear(g, x, dims(vocab=self.vocab), bias=False, weight=table if self.tied else None)
        class_loss(g, x)

    def _table(self, g: Builder, name: str) -> Value:
        with g.scope(name):
            return g.parameter("weight", dims(vocab=self.vocab, hidden=self.hidden))

    def _embed(self, g: Builder, name: str, table: Value, batch: int, length: int) -> Value:
        with g.scope("shared"):
            tokens = g.input(name, dims(sample=batch, sequence=length), "int64")
            x = embedding(g, tokens, self.vocab, dims(hidden=self.hidden), weight=table)
        return dropout(g, x, self.dropout)

    def _stack(self, g: Builder, x: Value, layers: int, memory: Value | None = None) -> Value:
        """The encoder, or with a memory to look at the decoder."""
        with g.scope("decoder" if memory else "encoder"):
            bias = self._position_bias(g, x.size("sequence"), causal=memory is not None)
            for layer in range(layers):
                with g.scope(f"layers.{layer}"):
                    x = self._block(g, x, bias, memory)
            with g.scope("norm"):
                x = rms_norm(g, x)
            return dropout(g, x, self.dropout)

    def _position_bias(self, g: Builder, length: int, causal: bool) -> Value:
        """A number for each head and pair of places, from a table over buckets of distances."""
        square = dims(sequence=length, key=length)
        buckets = g.buffer("buckets", square, "int64")
        with g.scope("position_bias"):
            bias = embedding(g, buckets, self.buckets, dims(head=self.heads))
            bias = copy(g, view(g, bias, dims(head=self.heads, sequence=length, key=length), "transpose"))
        if causal:
            bias = combine(g, bias, g.buffer("future", square, "bool"), "where")
        return bias

    def _block(self, g: Builder, x: Value, bias: Value, memory: Value | None) -> Value:
        with g.scope("attention_norm"):
            y = rms_norm(g, x)
        with g.scope("attention"):
            y = self._attend(g, y, None, bias)
        x = combine(g, x, dropout(g, y, self.dropout))
        if memory:
            with g.scope("cross_attention_norm"):
                y = rms_norm(g, x)
            with g.scope("cross_attention"):
                y = self._attend(g, y, memory, None)
            x = combine(g, x, dropout(g, y, self.dropout))
        with g.scope("feed_forward_norm"):
            y = rms_norm(g, x)
        with g.scope("feed_forward"):
            y = self._feed_forward(g, y)
        return combine(g, x, dropout(g, y, self.dropout))

    def _attend(self, g: Builder, x: Value, memory: Value | None, bias: Value | None) -> Value:
        return attend(
            g,
            x,
            self.heads,
            head_dim=self.head_dim,
            memory=memory,
            score_bias=bias,
            bias=False,
            kernel=self.attention,
            rate=self.dropout,
        )

    def _feed_forward(self, g: Builder, x: Value) -> Value:
        names = ("gate", "up") if self.gated else ("up",)
        parts: list[Value] = []
        for name in names:
            with g.scope(name):
                parts.append(linear(g, x, dims(ffn=self.ffn), bias=False))
        y = activation(g, parts[0], self.activation)
        if self.gated:
            y = combine(g, y, parts[1], "multiply")
        y = dropout(g, y, self.dropout)
        with g.scope("down"):
            return linear(g, y, x.dims[-1:], bias=False)


def _gated(layers: Count, hidden: Count, heads: Count, ffn: Count) -> T5:
    """Version 1.1, whose sizes Flan-T5 has too."""
    return T5(
        layers=layers, hidden=hidden, heads=heads, ffn=ffn, activation="gelu_tanh", gated=True, tied=False
    )  # fmt: skip


PRESETS = {
    "t5": T5(),
    "t5-small": T5(layers=6, hidden=512, heads=8, ffn=2048),
    "t5-base": T5(),
    "t5-large": T5(layers=24, hidden=1024, heads=16, ffn=4096),
    "t5-3b": T5(layers=24, hidden=1024, heads=32, head_dim=128, ffn=16384),
    "t5-11b": T5(layers=24, hidden=1024, heads=128, head_dim=128, ffn=65536),
    "t5-v1.1-small": _gated(8, 512, 6, 1024),
    "t5-v1.1-base": _gated(12, 768, 12, 2048),
    "t5-v1.1-large": _gated(24, 1024, 16, 2816),
    "t5-v1.1-xl": _gated(24, 2048, 32, 5120),
    "t5-v1.1-xxl": _gated(24, 4096, 64, 10240),
}
