"""ViT: an image as a sequence of patches through a pre-norm transformer encoder."""

from __future__ import annotations

from typing import ClassVar

from foretell.model.build import Builder, Value, dims
from foretell.model.family import Count, Family, Rate
from foretell.model.operators.broadcast import broadcast
from foretell.model.operators.dropout import dropout
from foretell.model.operators.layout import concatenate, view
from foretell.model.operators.matmul import linear
from foretell.model.operators.normalization import layer_norm
from foretell.model.zoo._encoder import PreNorm, check_activation, head_size, patches, pre_norm_layer, tokens_of
from foretell.model.zoo._task import class_loss, images


class Vit(Family, frozen=True, kw_only=True):
    """Patches of `patch` x `patch` pixels, a class token, learned positions, `layers` blocks."""

    references: ClassVar[tuple[str, ...]] = ("Dosovitskiy et al. 2021, arXiv 2010.11929",)

    layers: Count = 12
    hidden: Count = 768
    heads: Count = 12
    ffn: Count = 3072
    activation: str = "gelu"
    patch: Count = 16
    image: Count = 224
    channels: Count = 3
    classes: Count = 1000
    dropout: Rate = 0.0
    attention: str = "flash"

    def check(self) -> None:
        head_size(self.hidden, self.heads)
        check_activation(self.activation)

    @property
    def layer(self) -> PreNorm:
        """Each of them."""
        return PreNorm(self.heads, self.ffn, self.activation, kernel=self.attention, dropout=self.dropout)

    def build(self, g: Builder, batch: int) -> None:
        x = self._embed(g, batch)
        for layer in range(self.layers):
            with g.scope(f"layers.{layer}"):
                x = pre_norm_layer(g, x, self.layer)
        with g.scope("norm"):
            x = layer_norm(g, x)
        x = view(g, x, (x.dims[0], x.dims[2]), "slice")
        with g.scope("head"):
            x = linear(g, x, dims(class_=self.classes))
        class_loss(g, x)

    def _embed(self, g: Builder, batch: int) -> Value:
        image = images(g, batch, self.image, self.channels)
        with g.scope("patches"):
            x = tokens_of(g, patches(g, image, self.patch, self.hidden))
        token = g.parameter("class_token", dims(sequence=1, hidden=self.hidden))
        token = view(g, token, dims(sample=batch, sequence=1, hidden=self.hidden), "expand")
        x = concatenate(g, [token, x], "sequence")
        position = g.parameter("position", x.dims[1:])
        return dropout(g, broadcast(g, x, position, "add", weight=True), self.dropout)


def _large(patch: Count) -> Vit:
    return Vit(layers=24, hidden=1024, heads=16, ffn=4096, patch=patch)


PRESETS = {
    "vit": Vit(),
    "vit-b-16": Vit(),
    "vit-b-32": Vit(patch=32),
    "vit-l-16": _large(16),
    "vit-l-32": _large(32),
    "vit-h-14": Vit(layers=32, hidden=1280, heads=16, ffn=5120, patch=14),
}
