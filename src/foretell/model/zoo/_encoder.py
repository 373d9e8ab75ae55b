"""What encoders share: multi-head attention as a layer, feed-forward, both behind norms, patches."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from foretell.errors import BadInput
from foretell.model.attention import attention_kernel
from foretell.model.build import Builder, Value, dims
from foretell.model.dims import Dim
from foretell.model.operators.attention import attention
from foretell.model.operators.convolution import convolution
from foretell.model.operators.dropout import dropout
from foretell.model.operators.elementwise import activation, combine, copy
from foretell.model.operators.layout import view
from foretell.model.operators.matmul import linear
from foretell.model.operators.normalization import layer_norm

ACTIVATIONS = ("gelu", "gelu_tanh", "relu", "silu")
"""Between the two dense layers of a feed-forward."""

WITH_QUICK = (*ACTIVATIONS, "quick_gelu")
"""The same, and CLIP's."""


def check_activation(name: str, known: tuple[str, ...] = ACTIVATIONS) -> None:
    """Refuse a function that the modules do not have."""
    if name not in known:
        raise BadInput(f"activation={name} is not known", fix=", ".join(f"activation={word}" for word in known))


def head_size(hidden: int, heads: int) -> int:
    """The features of one head when the heads share `hidden` evenly."""
    if hidden % heads:
        near = max(1, round(hidden / heads)) * heads
        raise BadInput(f"{heads} heads do not divide hidden={hidden}", fix=f"hidden={near} or another number of heads")
    return hidden // heads


CAUSAL: Final = "causal"


class AttentionBiases(NamedTuple):
    """Which dense layers of an attention have a bias: those of queries and values, of keys, and the output's."""

    rest: bool
    key: bool
    output: bool


NO_KEY = AttentionBiases(rest=True, key=False, output=True)
OUTPUT_ALONE = AttentionBiases(rest=False, key=False, output=True)


class PreNorm(NamedTuple):
    """A layer of attention and feed-forward, each behind a norm; `crossed` ones look at a memory between the two."""

    heads: int
    ffn: int
    activation: str = "gelu"
    biases: AttentionBiases | bool = True
    causal: bool = False
    crossed: bool = False
    kernel: str = "flash"
    dropout: float = 0.0


def attend(
    g: Builder,
    x: Value,
    heads: int,
    *,
    head_dim: int = 0,
    memory: Value | None = None,
    score_bias: Value | Literal["causal"] | None = None,
    bias: bool | AttentionBiases = True,
    kernel: str = "flash",
    rate: float = 0.0,
) -> Value:
    """Queries of x[..., sequence, hidden] over the keys and values of `memory` (or x itself).

    `bias` is that of the four dense layers; `score_bias` is added to the scores, where it does not hide later places.
    """
    *outer, hidden = x.dims
    source = memory or x
    has = bias if isinstance(bias, AttentionBiases) else AttentionBiases(bias, bias, bias)
    causal, added = score_bias == CAUSAL, None if isinstance(score_bias, str) else score_bias
    each = dims(head=heads, head_dim=head_dim or head_size(hidden.size, heads))
    parts: list[Value] = []
    for name, value in (("query", x), ("key", source), ("value", source)):
        with g.scope(name):
            part = linear(g, value, each, bias=has.key if name == "key" else has.rest)
            *rows, sequence, head, size = part.dims
            parts.append(view(g, part, (*rows, head, sequence, size), "transpose"))
    found = attention_kernel(kernel)
    if found.causal_only and not causal:
        raise BadInput(f"{kernel} attention looks back alone, and this model looks both ways", fix="attention=flash")
    y = attention(g, *parts, causal=causal, kernel=kernel, dropout=rate, bias=added)
    y = view(g, y, (*outer, *each), "transpose")
    if found.heads_outside:  # the output layer needs them together
        y = copy(g, y)
    with g.scope("output"):
        return linear(g, y, (hidden,), contract=2, bias=has.output)


def feed_forward(g: Builder, x: Value, ffn: int, function: str = "gelu", rate: float = 0.0) -> Value:
    """Two dense layers with an activation between them."""
    with g.scope("up"):
        y = linear(g, x, dims(ffn=ffn))
    with g.scope("activation"):
        y = quick_gelu(g, y) if function == "quick_gelu" else activation(g, y, function)
    y = dropout(g, y, rate)
    with g.scope("down"):
        return linear(g, y, x.dims[-1:])


def quick_gelu(g: Builder, x: Value) -> Value:
    """x times the sigmoid of 1.702 x."""
    return combine(g, x, activation(g, activation(g, x, "scale"), "sigmoid"), "multiply")


def pre_norm_layer(g: Builder, x: Value, of: PreNorm, memory: Value | None = None) -> Value:
    """Attention, attention to a memory where there is one, and feed-forward: each after a norm, around a shortcut."""
    with g.scope("attention_norm"):
        y = layer_norm(g, x)
    with g.scope("attention"):
        y = attend(g, y, of.heads, score_bias=CAUSAL if of.causal else None, bias=of.biases, kernel=of.kernel)
    x = combine(g, x, dropout(g, y, of.dropout))
    if of.crossed:
        with g.scope("cross_attention_norm"):
            y = layer_norm(g, x)
        with g.scope("cross_attention"):
            y = attend(g, y, of.heads, memory=memory, bias=of.biases, kernel=of.kernel)
        x = combine(g, x, dropout(g, y, of.dropout))
    with g.scope("feed_forward_norm"):
        y = layer_norm(g, x)
    with g.scope("feed_forward"):
        y = feed_forward(g, y, of.ffn, of.activation, rate=of.dropout)
    return combine(g, x, dropout(g, y, of.dropout))


def patches(g: Builder, image: Value, patch: int, hidden: int) -> Value:
    """The image cut into squares, each mapped to `hidden` features: [sample, channel, height, width]."""
    size = image.size("height")
    if size % patch:
        near = max(1, round(size / patch)) * patch
        raise BadInput(f"patch={patch} does not tile image={size}", fix=f"image={near}")
    return convolution(g, image, hidden, patch, stride=patch)


def tokens_of(g: Builder, x: Value) -> Value:
    """x[sample, channel, height, width] read as [sample, sequence, hidden]."""
    sample, channel, height, width = x.dims
    shape = (sample, Dim("sequence", height.size * width.size), Dim("hidden", channel.size))
    return view(g, x, shape, "transpose")
