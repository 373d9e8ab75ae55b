"""Qwen3-Next: three layers of the gated delta rule to one of attention, whose output has a gate; many small experts.

Counts are those of the model itself, without the layer that predicts a second token.
"""

from __future__ import annotations

from typing import ClassVar

from foretell.errors import BadInput
from foretell.model.build import Builder, Value, dims
from foretell.model.dims import Dim
from foretell.model.family import Count, Index
from foretell.model.operators.delta_rule import delta_rule
from foretell.model.operators.elementwise import Elementwise, activation, combine
from foretell.model.operators.layout import split, view
from foretell.model.operators.matmul import linear
from foretell.model.operators.normalization import rms_norm
from foretell.model.operators.rotary import rotary
from foretell.model.operators.scan import short_convolution
from foretell.model.zoo._decoder import LayerContext, causal_attention, heads_outside
from foretell.model.zoo.mixture import Mixture


class Qwen3Next(Mixture, frozen=True, kw_only=True):
    """Every `global_every`th layer attends; others have `rule_heads` of values over `rule_keys` of queries and keys."""

    references: ClassVar[tuple[str, ...]] = (
        "Qwen Team 2025 (Qwen3-Next), its model card and configuration",
        "Yang et al. 2024 (gated delta networks), arXiv 2412.06464",
    )

    layers: Count = 48
    hidden: Count = 2048
    heads: Count = 16
    kv_heads: Index = 2
    head_dim: Index = 256
    rotary_dim: Index = 64
    vocab: Count = 151936
    seq: Count = 4096
    theta: float = 1e7
    qk_norm: bool = True
    global_every: Index = 4
    ffn: Index = 512
    experts: Count = 512
    top_k: Count = 10
    shared_ffn: Index = 512
    shared_gate: bool = True
    rule_heads: Count = 32
    rule_keys: Count = 16
    rule_head_dim: Count = 128
    rule_key_dim: Count = 128
    taps: Count = 4

    def check(self) -> None:
        super().check()
        if self.rule_heads % self.rule_keys:
            near = max(1, round(self.rule_heads / self.rule_keys)) * self.rule_keys
            what = f"rule_heads={self.rule_heads} do not share rule_keys={self.rule_keys} evenly"
            raise BadInput(what, fix=f"rule_heads={near}")
        if self.window or self.qkv_bias or self.out_bias:
            raise BadInput("layers that attend see everything and have no biases", fix="window=0, without biases")

    def attend(self, g: Builder, x: Value, context: LayerContext, layer: int) -> Value:
        return self._gated(g, x, context) if self.is_global(layer) else self._ruled(g, x)

    def _gated(self, g: Builder, x: Value, context: LayerContext) -> Value:
        """Attention, each feature of its output times a gate."""
        assert context.angles
        parts: list[Value] = []
        gate: Value | None = None
        for name, heads in (("query", self.heads), ("key", self.shared_heads), ("value", self.shared_heads)):
            wide = 2 if name == "query" else 1
            with g.scope(name):
                part = linear(g, x, dims(head=heads, head_dim=wide * self.size), bias=False)
            if name == "query":
                part, gate = split(g, part, "head_dim", (self.size, self.size))
            if name != "value":
                with g.scope(f"{name}_norm"):
                    part = rms_norm(g, part)
            part = heads_outside(g, part)
            parts.append(part if name == "value" else rotary(g, part, *context.angles))
        assert gate
        y = causal_attention(g, parts[0], parts[1], parts[2], kernel=self.attention)
        y = combine(g, y, activation(g, gate, "sigmoid"), "multiply")
        with g.scope("output"):
            return linear(g, y, x.dims[-1:], contract=2, bias=False)

    def _ruled(self, g: Builder, x: Value) -> Value:
        """A short convolution of queries, keys and values, the delta rule, and a gated norm of each head."""
        keys, values = self.rule_keys * self.rule_key_dim, self.rule_heads * self.rule_head_dim
        with g.scope("input"):
            both = linear(g, x, dims(feature=2 * keys + 2 * values), bias=False)
        mixed, gate = split(g, both, "feature", (2 * keys + values, values))
        with g.scope("steps"):
            steps = linear(g, x, dims(head=2 * self.rule_heads), bias=False)
        written, dt = split(g, steps, "head", (self.rule_heads, self.rule_heads))
        with g.scope("convolution"):
            mixed = activation(g, short_convolution(g, mixed, self.taps, bias=False), "silu")
        query, key, value = split(g, mixed, "feature", (keys, keys, values))
        sample, sequence, _ = value.dims
        each = (sample, sequence, Dim("head", self.rule_heads), Dim("head_dim", self.rule_head_dim))
        value = view(g, value, each)
        query, key = (self._repeated(g, part) for part in (query, key))
        with g.scope("rule"):
            y = delta_rule(g, query, key, value, dt, activation(g, written, "sigmoid"))
        with g.scope("norm"):
            y = rms_norm(g, y)
        y = combine(g, y, activation(g, view(g, gate, each), "silu"), "multiply")
        y = view(g, y, (sample, sequence, Dim("feature", values)))
        with g.scope("output"):
            return linear(g, y, x.dims[-1:], bias=False)

    def _repeated(self, g: Builder, x: Value) -> Value:
        """Keys or queries with each head as often as heads of values share it."""
        sample, sequence, _ = x.dims
        x = view(g, x, (sample, sequence, *dims(head=self.rule_keys, key=self.rule_key_dim)))
        shape = (sample, sequence, Dim("head", self.rule_heads), x.dims[-1])
        return x if shape == x.dims else g.apply(Elementwise("copy"), {"item": shape}, {"x": x}, shape)


PRESETS = {
    "qwen3_next": Qwen3Next(),
    "qwen3-next-80b-a3b": Qwen3Next(),
}
