"""CLIP: a tower for images and one for texts, whose outputs for a pair should be closer than for any other two.

The loss is that of the images and texts that a rank has, as the class of transformers under data parallelism has it.
Lengths are divided out by a norm without weights, which is the same but for a constant factor in the scale.
"""

from __future__ import annotations

from typing import ClassVar

from foretell.model.build import Builder, Value, dims
from foretell.model.family import Count, Family
from foretell.model.operators.broadcast import broadcast
from foretell.model.operators.cross_entropy import cross_entropy
from foretell.model.operators.elementwise import activation, cast, combine
from foretell.model.operators.embedding import embedding
from foretell.model.operators.experts import gather
from foretell.model.operators.layout import view
from foretell.model.operators.matmul import Matmul, linear
from foretell.model.operators.normalization import layer_norm, rms_norm
from foretell.model.zoo._encoder import WITH_QUICK, PreNorm, check_activation, head_size, pre_norm_layer
from foretell.model.zoo._task import tokens
from foretell.model.zoo._tower import Tower, look


class Clip(Family, frozen=True, kw_only=True):
    """Fields with `text_` are those of the tower for texts; both end in `embedding` features."""

    references: ClassVar[tuple[str, ...]] = ("Radford et al. 2021 (CLIP), arXiv 2103.00020",)

    layers: Count = 12
    hidden: Count = 768
    heads: Count = 12
    ffn: Count = 3072
    patch: Count = 32
    image: Count = 224
    text_layers: Count = 12
    text_hidden: Count = 512
    text_heads: Count = 8
    text_ffn: Count = 2048
    vocab: Count = 49408
    seq: Count = 77
    embedding: Count = 512
    activation: str = "quick_gelu"
    attention: str = "flash"

    def check(self) -> None:
        head_size(self.hidden, self.heads)
        head_size(self.text_hidden, self.text_heads)
        check_activation(self.activation, WITH_QUICK)
        self.tower.check()

    @property
    def tower(self) -> Tower:
        """The one for images."""
        return Tower(
            self.layers, self.hidden, self.heads, self.ffn, self.patch, self.image, self.activation, self.attention
        )

    @property
    def text_layer(self) -> PreNorm:
        """Each layer of the tower for texts."""
        return PreNorm(self.text_heads, self.text_ffn, self.activation, causal=True, kernel=self.attention)

    def build(self, g: Builder, batch: int) -> None:
        with g.scope("vision"):
            x = look(g, batch, self.tower)
            x = view(g, x, (x.dims[0], x.dims[2]), "slice")
            with g.scope("norm"):
                x = layer_norm(g, x)
            seen = self._unit(g, x)
        with g.scope("text"):
            read = self._unit(g, self._read(g, batch))
        sample = read.dims[:1]
        loops = {"batch": (), "row": sample, "in": read.dims[1:], "out": sample}
        logits = g.apply(Matmul(), loops, {"x": read, "w": seen}, sample + sample)
        scale = activation(g, g.parameter("scale", ()), "exp")
        logits = broadcast(g, logits, scale, "multiply")
        pairs = g.input("pairs", sample, "int64")
        with g.scope("loss"):
            wide = cast(g, logits, "fp32")
            of_texts = cross_entropy(g, wide, pairs)
            of_images = cross_entropy(g, view(g, wide, wide.dims, "transpose"), pairs)
            activation(g, combine(g, of_texts, of_images), "scale")

    def _read(self, g: Builder, batch: int) -> Value:
        """What the last token of each text has become."""
        with g.scope("embedding"):
            x = embedding(g, tokens(g, batch, self.seq), self.vocab, dims(hidden=self.text_hidden))
        x = broadcast(g, x, g.parameter("position", x.dims[1:]), "add", weight=True)
        for layer in range(self.text_layers):
            with g.scope(f"layers.{layer}"):
                x = pre_norm_layer(g, x, self.text_layer)
        with g.scope("norm"):
            x = layer_norm(g, x)
        return gather(g, x, g.input("ends", x.dims[:1], "int64"), x.dims[:1])

    def _unit(self, g: Builder, x: Value) -> Value:
        with g.scope("projection"):
            return rms_norm(g, linear(g, x, dims(embedding=self.embedding), bias=False), affine=False)


def _large(image: int) -> Clip:
    return Clip(
        layers=24, hidden=1024, heads=16, ffn=4096, patch=14, image=image,
        text_hidden=768, text_heads=12, text_ffn=3072, embedding=768,
    )  # fmt: skip


PRESETS = {
    "clip": Clip(),
    "clip-b-32": Clip(),
    "clip-b-16": Clip(patch=16),
    "clip-l-14": _large(224),
    "clip-l-14-336": _large(336),
}
