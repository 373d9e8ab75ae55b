"""The transformer that CLIP looks at images with, which vision-language models look with too."""

from __future__ import annotations

from typing import NamedTuple

from foretell.errors import BadInput
from foretell.model.build import Builder, Value, dims
from foretell.model.operators.broadcast import broadcast
from foretell.model.operators.convolution import convolution
from foretell.model.operators.layout import concatenate, view
from foretell.model.operators.normalization import layer_norm
from foretell.model.zoo._encoder import PreNorm, pre_norm_layer, tokens_of
from foretell.model.zoo._task import images


class Tower(NamedTuple):
    """Squares of `patch` pixels of an image, behind a token for all of it, through layers without a last norm."""

    layers: int
    hidden: int
    heads: int
    ffn: int
    patch: int
    image: int
    activation: str
    attention: str

    @property
    def patches(self) -> int:
        """Squares of an image."""
        return (self.image // self.patch) ** 2

    @property
    def each(self) -> PreNorm:
        """A layer."""
        return PreNorm(self.heads, self.ffn, self.activation, kernel=self.attention)

    def check(self) -> None:
        """Refuse images that squares do not tile."""
        if self.image % self.patch:
            near = max(1, round(self.image / self.patch)) * self.patch
            raise BadInput(f"patch={self.patch} does not tile image={self.image}", fix=f"image={near}")


def look(g: Builder, batch: int, tower: Tower, layers: int = 0) -> Value:
    """What all layers, or the first so many, make of images: [sample, sequence, hidden], the token of all first."""
    image = images(g, batch, tower.image)
    with g.scope("patches"):
        x = tokens_of(g, convolution(g, image, tower.hidden, tower.patch, stride=tower.patch, bias=False))
    token = g.parameter("class_token", dims(sequence=1, hidden=tower.hidden))
    token = view(g, token, dims(sample=batch, sequence=1, hidden=tower.hidden), "expand")
    x = concatenate(g, [token, x], "sequence")
    x = broadcast(g, x, g.parameter("position", x.dims[1:]), "add", weight=True)
    with g.scope("pre_norm"):
        x = layer_norm(g, x)
    for layer in range(layers or tower.layers):
        x = tower_layer(g, x, tower, layer)
    return x


def tower_layer(g: Builder, x: Value, tower: Tower, layer: int) -> Value:
    """What one layer makes of x[sample, sequence, hidden]."""
    with g.scope(f"layers.{layer}"):
        return pre_norm_layer(g, x, tower.each)
