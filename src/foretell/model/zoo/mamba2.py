"""Mamba-2: layers of scans alone, each after a norm and around a shortcut, without positions or feed-forward."""

from __future__ import annotations

from typing import ClassVar

from foretell.errors import BadInput
from foretell.model.build import Builder, dims
from foretell.model.family import Count, Family
from foretell.model.operators.elementwise import combine
from foretell.model.operators.embedding import embedding
from foretell.model.operators.normalization import rms_norm
from foretell.model.zoo._decoder import language_loss
from foretell.model.zoo._state_space import StateSpace, state_space
from foretell.model.zoo._task import tokens


class Mamba2(Family, frozen=True, kw_only=True):
    """`expand` times the hidden features in heads of `head_dim`, with `state` features of keys and queries."""

    references: ClassVar[tuple[str, ...]] = (
        "Dao, Gu 2024 (Mamba-2), arXiv 2405.21060",
        "Mistral AI 2024 (Codestral Mamba), its model card",
    )

    layers: Count = 24
    hidden: Count = 768
    vocab: Count = 50288
    seq: Count = 2048
    tied: bool = True
    expand: Count = 2
    head_dim: Count = 64
    state: Count = 128
    groups: Count = 1
    taps: Count = 4
    chunk: Count = 256

    def check(self) -> None:
        if self.expand * self.hidden % self.head_dim:
            what = f"{self.expand} x {self.hidden} features are no whole number of heads of {self.head_dim}"
            raise BadInput(what, fix=f"hidden={-(-self.hidden // self.head_dim) * self.head_dim}")
        self.sizes.check()

    @property
    def sizes(self) -> StateSpace:
        """Of each layer."""
        heads = self.expand * self.hidden // self.head_dim
        return StateSpace(heads, self.head_dim, self.state, self.groups, self.taps, self.chunk)

    def build(self, g: Builder, batch: int) -> None:
        with g.scope("embedding"):
            table = g.parameter("weight", dims(vocab=self.vocab, hidden=self.hidden))
            x = embedding(g, tokens(g, batch, self.seq), self.vocab, dims(hidden=self.hidden), weight=table)
        for layer in range(self.layers):
            with g.scope(f"layers.{layer}.norm"):
                y = rms_norm(g, x)
            with g.scope(f"layers.{layer}.mixer"):
                y = state_space(g, y, self.sizes)
            with g.scope(f"layers.{layer}"):
                x = combine(g, x, y)
        with g.scope("norm"):
            x = rms_norm(g, x)
        language_loss(g, x, self.vocab, table if self.tied else None)


PRESETS = {
    "mamba2": Mamba2(),
    "mamba2-130m": Mamba2(),
    "mamba2-370m": Mamba2(layers=48, hidden=1024),
    "mamba2-780m": Mamba2(layers=48, hidden=1536),
    "mamba2-1.3b": Mamba2(layers=48, hidden=2048),
    "mamba2-2.7b": Mamba2(layers=64, hidden=2560),
    "mamba-codestral-7b": Mamba2(layers=64, hidden=4096, vocab=32768, groups=8, tied=False),
}
