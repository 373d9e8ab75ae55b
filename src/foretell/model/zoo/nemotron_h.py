"""Nemotron-H: scans, feed-forwards and a few attentions, one to a layer, in the order of a pattern."""

from __future__ import annotations

from typing import ClassVar

from foretell.errors import BadInput
from foretell.model.build import Builder, Value, dims
from foretell.model.family import Count
from foretell.model.operators.elementwise import activation, combine
from foretell.model.operators.embedding import embedding
from foretell.model.operators.matmul import linear
from foretell.model.operators.normalization import rms_norm
from foretell.model.zoo._decoder import LayerContext, language_loss
from foretell.model.zoo._state_space import StateSpace, state_space
from foretell.model.zoo._task import tokens
from foretell.model.zoo.llama import Llama

KINDS = "M-*"


class NemotronH(Llama, frozen=True, kw_only=True):
    """`pattern` has a letter a layer: M a scan, - a feed-forward with squared ReLU, * attention without positions.

    `layers` cuts or repeats the pattern; 0 fields of Llama that speak of positions have no meaning here.
    """

    references: ClassVar[tuple[str, ...]] = ("NVIDIA 2025 (Nemotron-H), arXiv 2504.03624",)

    layers: Count = 52
    hidden: Count = 4096
    heads: Count = 32
    kv_heads: int = 8
    head_dim: int = 128
    ffn: int = 21504
    vocab: Count = 131072
    seq: Count = 4096
    pattern: str = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"
    scan_heads: Count = 128
    scan_head_dim: Count = 64
    state: Count = 128
    groups: Count = 8
    taps: Count = 4
    chunk: Count = 128

    def check(self) -> None:
        super().check()
        strange = sorted({letter for letter in self.pattern if letter not in KINDS})
        if strange or not self.pattern:
            what = f"pattern={self.pattern} has {' '.join(strange) or 'no layers'}"
            raise BadInput(what, fix="M for a scan, - for a feed-forward, * for attention: pattern=M-M*-")
        self.sizes.check()

    @property
    def sizes(self) -> StateSpace:
        """Of each layer that scans."""
        return StateSpace(self.scan_heads, self.scan_head_dim, self.state, self.groups, self.taps, self.chunk)

    def kind(self, layer: int) -> str:
        """The letter of a layer."""
        return self.pattern[layer % len(self.pattern)]

    def context(self, g: Builder) -> LayerContext:
        return LayerContext()

    def turns(self, layer: int) -> bool:
        return False

    def build(self, g: Builder, batch: int) -> None:
        with g.scope("embedding"):
            table = g.parameter("weight", dims(vocab=self.vocab, hidden=self.hidden))
            x = embedding(g, tokens(g, batch, self.seq), self.vocab, dims(hidden=self.hidden), weight=table)
        for layer in range(self.layers):
            with g.scope(f"layers.{layer}.norm"):
                y = rms_norm(g, x)
            with g.scope(f"layers.{layer}.mixer"):
                y = self._mixed(g, y, layer)
            with g.scope(f"layers.{layer}"):
                x = combine(g, x, y)
        with g.scope("norm"):
            x = rms_norm(g, x)
        language_loss(g, x, self.vocab, table if self.tied else None)

    def _mixed(self, g: Builder, x: Value, layer: int) -> Value:
        if self.kind(layer) == "M":
            return state_space(g, x, self.sizes)
        if self.kind(layer) == "*":
            return self.attend(g, x, LayerContext(), layer)
        with g.scope("up"):
            y = linear(g, x, dims(ffn=self.inner), bias=False)
        y = activation(g, activation(g, y, "relu"), "square")
        with g.scope("down"):
            return linear(g, y, x.dims[-1:], bias=False)


PRESETS = {
    "nemotron_h": NemotronH(),
    "nemotron-h-8b": NemotronH(),
}
