"""What decoder language models share: causal attention over heads, gated feed-forward, the token loss.

`Decoder` is the frame of the newer ones (RMS norm, rotary positions, no biases): a family fills in
how a layer attends and what its feed-forward is.
"""

from __future__ import annotations

import abc
from typing import NamedTuple

from foretell.errors import BadInput
from foretell.model.attention import ATTENTIONS, attention_kernel
from foretell.model.build import Builder, Value, dims
from foretell.model.dims import Dim
from foretell.model.family import Count, Family
from foretell.model.operators.attention import attention
from foretell.model.operators.elementwise import Elementwise, activation, combine, copy
from foretell.model.operators.embedding import embedding
from foretell.model.operators.layout import view
from foretell.model.operators.matmul import linear
from foretell.model.operators.normalization import rms_norm
from foretell.model.zoo._task import class_loss, tokens

HALF = ("bf16", "fp16")
"""The types that flash kernels take."""


class LayerContext(NamedTuple):
    """What layers see besides their input: angles of positions, and a bias on the scores."""

    angles: tuple[Value, Value] | None = None
    bias: Value | None = None
    local_angles: tuple[Value, Value] | None = None  # of layers with a window, where theirs are others


def one_of(field: str, value: str, allowed: tuple[str, ...]) -> None:
    """Refuse a word that a field does not know."""
    if value not in allowed:
        raise BadInput(f"{field}={value} is not known", fix=", ".join(f"{field}={word}" for word in allowed))


def check_heads(heads: int, kv_heads: int) -> None:
    """Refuse query heads that cannot share the key and value heads evenly."""
    if heads % kv_heads:
        fix = f"kv_heads={next(n for n in range(kv_heads, 0, -1) if heads % n == 0)}"
        raise BadInput(f"heads={heads} is not a multiple of kv_heads={kv_heads}", fix=fix)


def check_angles(features: int, head_dim: int) -> None:
    """Refuse rotary positions over an odd number of features, or over more than a head has."""
    if features % 2 or features > head_dim:
        near = min(features, head_dim) // 2 * 2
        what = f"rotary positions turn pairs of features: {features} of a head's {head_dim} do not work"
        raise BadInput(what, fix=f"an even number up to {head_dim}, such as {near or 2}")


def rotary_angles(g: Builder, sequence: int, features: int, name: str = "rotary") -> tuple[Value, Value]:
    """The cosine and sine of every position's angles: one table for all layers."""
    shape = dims(sequence=sequence, angle=features // 2)
    with g.scope(name):
        cos, sin = (view(g, g.buffer(name, shape), shape, "slice") for name in ("cos", "sin"))
        return cos, sin


def score_mask(g: Builder, source: Value, *heads: Dim, sequence: int) -> Value:
    """A bias[head, query, key] made once from a smaller tensor: who may see whom, and how well."""
    shape = (*heads, Dim("sequence", sequence), Dim("key", sequence))
    return g.apply(Elementwise("where"), {"item": shape}, {"x": source}, shape, dtype=g.dtype)


def heads_outside(g: Builder, x: Value) -> Value:
    """x[sample, sequence, head, head_dim] read as [sample, head, sequence, head_dim]."""
    sample, sequence, head, size = x.dims
    return view(g, x, (sample, head, sequence, size), "transpose")


def causal_attention(
    g: Builder, q: Value, k: Value, v: Value, *, kernel: str, bias: Value | None = None, dropout: float = 0.0
) -> Value:
    """Attention to earlier places, heads inside again; a bias holds the mask too.

    Where a kernel cannot run (flash takes half types and no bias), another one does. Heads that share keys and values
    are repeated for a kernel that does not let them.
    """
    found = attention_kernel(kernel)
    cannot = (bias is not None and not found.takes_bias) or (found.half_only and q.dtype not in HALF)
    if cannot and found.otherwise:
        kernel = found.otherwise
        found = attention_kernel(kernel)
    if not found.shares_heads:
        k, v = (_repeated(g, part, q.size("head")) for part in (k, v))
    y = joined_heads(g, attention(g, q, k, v, causal=bias is None, kernel=kernel, dropout=dropout, bias=bias))
    return copy(g, y) if found.heads_outside else y


def joined_heads(g: Builder, y: Value) -> Value:
    """y[sample, head, sequence, head_dim] read as [sample, sequence, head, head_dim]."""
    sample, head, sequence, size = y.dims
    return view(g, y, (sample, sequence, head, size), "transpose")


def _repeated(g: Builder, x: Value, heads: int) -> Value:
    """x[sample, head, sequence, head_dim] with each head as often as it takes to have `heads`."""
    sample, head, sequence, size = x.dims
    if head.size == heads:
        return x
    shape = (sample, Dim("head", heads), sequence, size)
    if head.size == 1:  # read again and again where it lies
        return view(g, x, shape, "expand")
    return g.apply(Elementwise("copy"), {"item": shape}, {"x": x}, shape)


def gated_feed_forward(
    g: Builder, x: Value, ffn: int, functions: tuple[str, ...] = ("silu",), *, bias: bool = False
) -> Value:
    """down(f(gate(x)) * up(x)), where f may be several functions in a row."""
    columns = dims(ffn=ffn)
    with g.scope("gate"):
        gate = linear(g, x, columns, bias=bias)
    with g.scope("up"):
        up = linear(g, x, columns, bias=bias)
    for function in functions:
        gate = activation(g, gate, function)
    y = combine(g, gate, up, "multiply")
    with g.scope("down"):
        return linear(g, y, x.dims[-1:], bias=bias)


def language_loss(g: Builder, x: Value, vocab: int, table: Value | None = None, *, capped: bool = False) -> None:
    """The next token at every place: logits (from the token table, where it is tied) and their loss."""
    with g.scope("head"):
        logits = linear(g, x, dims(vocab=vocab), bias=False, weight=table)
    if capped:
        with g.scope("cap"):
            logits = soft_cap(g, logits)
    class_loss(g, logits)


def soft_cap(g: Builder, x: Value) -> Value:
    """cap * tanh(x / cap)."""
    return activation(g, activation(g, activation(g, x, "scale"), "tanh"), "scale")


class MainModel(NamedTuple):
    """A decoder without its head: what it read, the token table, what its layers shared, and what the head reads."""

    tokens: Value
    table: Value
    context: LayerContext
    states: Value


class Decoder(Family, frozen=True, kw_only=True):
    """Layers of attention and feed-forward, each after an RMS norm and around a shortcut."""

    layers: Count = 32
    hidden: Count = 4096
    heads: Count = 32
    vocab: Count = 32000
    seq: Count = 2048
    tied: bool = False
    theta: float = 10000.0
    attention: str = "flash"

    def check(self) -> None:
        one_of("attention", self.attention, tuple(ATTENTIONS))

    @property
    @abc.abstractmethod
    def rotary_features(self) -> int:
        """How many features of a head turn with the position."""

    @abc.abstractmethod
    def attend(self, g: Builder, x: Value, context: LayerContext, layer: int) -> Value:
        """What this layer's attention makes of x[sample, sequence, hidden]."""

    @abc.abstractmethod
    def feed_forward(self, g: Builder, x: Value, layer: int) -> Value:
        """What the feed-forward of this layer makes of it."""

    @property
    def text(self) -> int:
        """Places of a sequence that are tokens."""
        return self.seq

    def entering(self, g: Builder, x: Value) -> Value:
        """What the first layer reads, of embedded tokens x[sample, sequence, hidden]."""
        return x

    def context(self, g: Builder) -> LayerContext:
        """What all layers share."""
        return LayerContext(rotary_angles(g, self.seq, self.rotary_features))

    def build(self, g: Builder, batch: int) -> None:
        main = self.main(g, batch)
        language_loss(g, main.states, self.vocab, main.table if self.tied else None)

    def main(self, g: Builder, batch: int) -> MainModel:
        """All up to the head."""
        with g.scope("embedding"):
            table = g.parameter("weight", dims(vocab=self.vocab, hidden=self.hidden))
            text = tokens(g, batch, self.text)
            x = embedding(g, text, self.vocab, dims(hidden=self.hidden), weight=table)
        x = self.entering(g, x)
        context = self.context(g)
        for layer in range(self.layers):
            with g.scope(f"layers.{layer}"):
                x = self.layer(g, x, context, layer)
        with g.scope("norm"):
            x = rms_norm(g, x)
        return MainModel(text, table, context, x)

    def layer(self, g: Builder, x: Value, context: LayerContext, layer: int) -> Value:
        """What one layer makes of x[sample, sequence, hidden]."""
        with g.scope("attention_norm"):
            y = rms_norm(g, x)
        with g.scope("attention"):
            y = self.attend(g, y, context, layer)
        x = combine(g, x, y)
        with g.scope("feed_forward_norm"):
            y = rms_norm(g, x)
        with g.scope("feed_forward"):
            y = self.feed_forward(g, y, layer)
        return combine(g, x, y)
