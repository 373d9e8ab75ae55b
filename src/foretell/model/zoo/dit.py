"""DiT: a transformer that takes the noise out of latent images, each layer scaled and shifted by time and class.

The time step goes in as sines and cosines. The loss is that of the noise, patch by patch; the half of the output that
is a variance is made, and its own loss left out. Positions are a table that is not trained, and counted as published.
"""

from __future__ import annotations

from typing import ClassVar

from foretell.errors import BadInput
from foretell.model.build import Builder, Value, dims
from foretell.model.family import Count, Family
from foretell.model.operators.broadcast import broadcast
from foretell.model.operators.elementwise import activation, cast, combine
from foretell.model.operators.embedding import embedding
from foretell.model.operators.layout import split, view
from foretell.model.operators.matmul import linear
from foretell.model.operators.normalization import layer_norm
from foretell.model.operators.squared_error import squared_error
from foretell.model.zoo._encoder import attend, feed_forward, head_size, patches, tokens_of
from foretell.model.zoo._task import images

WAVES = 256
"""Sines and cosines of a time step."""


class Dit(Family, frozen=True, kw_only=True):
    """`image` is the side of a latent image: an eighth of the picture's."""

    references: ClassVar[tuple[str, ...]] = ("Peebles, Xie 2023 (DiT), arXiv 2212.09748",)

    layers: Count = 28
    hidden: Count = 1152
    heads: Count = 16
    ratio: Count = 4
    patch: Count = 2
    image: Count = 32
    channels: Count = 4
    classes: Count = 1000
    attention: str = "flash"

    def check(self) -> None:
        head_size(self.hidden, self.heads)
        if self.image % self.patch:
            near = max(1, round(self.image / self.patch)) * self.patch
            raise BadInput(f"patch={self.patch} does not tile image={self.image}", fix=f"image={near}")

    @property
    def places(self) -> int:
        """Patches of an image."""
        return (self.image // self.patch) ** 2

    def build(self, g: Builder, batch: int) -> None:
        image = images(g, batch, self.image, self.channels)
        with g.scope("patches"):
            x = tokens_of(g, patches(g, image, self.patch, self.hidden))
        position = g.parameter("position", x.dims[1:], trainable=False)
        x = broadcast(g, x, position, "add", weight=True)
        told = activation(g, self._told(g, batch), "silu")
        for layer in range(self.layers):
            with g.scope(f"layers.{layer}"):
                x = self._layer(g, x, told)
        shift, scale = self._modulation(g, told, 2)
        x = _modulated(g, layer_norm(g, x, affine=False), shift, scale)
        half = self.patch**2 * self.channels
        with g.scope("head"):
            x = linear(g, x, dims(noise=2 * half))
        noise, _ = split(g, x, "noise", (half, half))
        target = g.input("target", noise.dims, "fp32")
        with g.scope("loss"):
            squared_error(g, cast(g, noise, "fp32"), target)

    def _told(self, g: Builder, batch: int) -> Value:
        """Time and class, added up: [sample, hidden]."""
        waves = g.input("waves", dims(sample=batch, wave=WAVES))
        with g.scope("time.up"):
            time = linear(g, waves, dims(hidden=self.hidden))
        time = activation(g, time, "silu")
        with g.scope("time.down"):
            time = linear(g, time, dims(told=self.hidden))
        time = view(g, time, dims(sample=batch, hidden=self.hidden))
        wished = g.input("class", dims(sample=batch), "int64")
        with g.scope("classes"):
            return combine(g, time, embedding(g, wished, self.classes + 1, dims(hidden=self.hidden)))

    def _modulation(self, g: Builder, told: Value, count: int) -> list[Value]:
        """Shifts, scales and gates of each sample."""
        with g.scope("modulation"):
            parts = linear(g, told, dims(part=count * self.hidden))
        sample = parts.dims[:1]
        cut = split(g, parts, "part", (self.hidden,) * count)
        return [view(g, part, (*sample, *dims(hidden=self.hidden))) for part in cut]

    def _layer(self, g: Builder, x: Value, told: Value) -> Value:
        shift, scale, gate, shift_2, scale_2, gate_2 = self._modulation(g, told, 6)
        y = _modulated(g, layer_norm(g, x, affine=False), shift, scale)
        with g.scope("attention"):
            y = attend(g, y, self.heads, kernel=self.attention)
        x = combine(g, x, broadcast(g, y, gate, "multiply"))
        y = _modulated(g, layer_norm(g, x, affine=False), shift_2, scale_2)
        with g.scope("feed_forward"):
            y = feed_forward(g, y, self.ratio * self.hidden, "gelu_tanh")
        return combine(g, x, broadcast(g, y, gate_2, "multiply"))


def _modulated(g: Builder, x: Value, shift: Value, scale: Value) -> Value:
    """x * (1 + scale) + shift, the same for all patches of a sample."""
    return broadcast(g, broadcast(g, x, activation(g, scale, "scale"), "multiply"), shift, "add")


def _sizes(name: str, layers: int, hidden: int, heads: int) -> dict[str, Dit]:
    patched = (2, 4, 8)
    return {f"dit-{name}-{size}": Dit(layers=layers, hidden=hidden, heads=heads, patch=size) for size in patched}


PRESETS = {
    "dit": Dit(),
    **_sizes("s", 12, 384, 6),
    **_sizes("b", 12, 768, 12),
    **_sizes("l", 24, 1024, 16),
    **_sizes("xl", 28, 1152, 16),
}
