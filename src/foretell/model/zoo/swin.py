"""Swin: attention inside windows of an image, shifted at every second block, in four resolutions.

A learned bias for relative places is added to the scores, and a mask where a shifted window joins
parts that are not neighbours. Windows are small: scores are written out, as published.
"""

from __future__ import annotations

from typing import ClassVar

from foretell.errors import BadInput
from foretell.model.build import Builder, Value, dims
from foretell.model.dims import Dim
from foretell.model.family import Count, Family, Rate
from foretell.model.operators.dropout import dropout
from foretell.model.operators.elementwise import combine, copy
from foretell.model.operators.embedding import embedding
from foretell.model.operators.layout import concatenate, view
from foretell.model.operators.matmul import linear
from foretell.model.operators.normalization import layer_norm
from foretell.model.operators.reduction import reduce
from foretell.model.zoo._encoder import attend, feed_forward, head_size, patches
from foretell.model.zoo._task import class_loss, images

STAGES = 4


class Swin(Family, frozen=True, kw_only=True):
    """Four stages of `layers` blocks; `hidden` features in the first, twice as many in each next."""

    references: ClassVar[tuple[str, ...]] = ("Liu et al. 2021, arXiv 2103.14030",)

    layers: tuple[Count, Count, Count, Count] = (2, 2, 6, 2)
    heads: tuple[Count, Count, Count, Count] = (3, 6, 12, 24)
    hidden: Count = 96
    expansion: Count = 4
    window: Count = 7
    patch: Count = 4
    image: Count = 224
    channels: Count = 3
    classes: Count = 1000
    dropout: Rate = 0.0

    def check(self) -> None:
        for stage, heads in enumerate(self.heads):
            head_size(self.hidden << stage, heads)
        smallest = self.patch * self.window << (STAGES - 1)
        if self.image % smallest:
            near = max(1, round(self.image / smallest)) * smallest
            what = f"window={self.window} does not tile all four resolutions of image={self.image}"
            raise BadInput(what, fix=f"image={near}: a multiple of patch * window * {1 << (STAGES - 1)}")

    def grid(self, stage: int) -> int:
        """Tokens along each side of the image."""
        return self.image // self.patch >> stage

    def shift(self, stage: int, block: int) -> int:
        """How far a block's windows are shifted: half a window in every second one, if there are several."""
        return self.window // 2 if block % 2 and self.grid(stage) > self.window else 0

    def build(self, g: Builder, batch: int) -> None:
        image = images(g, batch, self.image, self.channels)
        with g.scope("patches"):
            x = patches(g, image, self.patch, self.hidden)
        side = self.grid(0)
        x = view(g, x, dims(sample=batch, height=side, width=side, hidden=self.hidden), "transpose")
        with g.scope("patch_norm"):
            x = dropout(g, layer_norm(g, x), self.dropout)
        for stage, count in enumerate(self.layers):
            if stage:
                with g.scope(f"merges.{stage - 1}"):
                    x = _merge(g, x)
            for block in range(count):
                with g.scope(f"stages.{stage}.{block}"):
                    x = self._block(g, x, self.heads[stage], self.shift(stage, block))
        with g.scope("norm"):
            x = layer_norm(g, x)
        x = reduce(g, x, ("height", "width"))
        with g.scope("head"):
            x = linear(g, x, dims(class_=self.classes))
        class_loss(g, x)

    def _block(self, g: Builder, x: Value, heads: int, shift: int) -> Value:
        with g.scope("attention_norm"):
            y = layer_norm(g, x)
        with g.scope("attention"):
            y = self._window_attention(g, y, heads, shift)
        x = combine(g, x, dropout(g, y, self.dropout))
        with g.scope("feed_forward_norm"):
            y = layer_norm(g, x)
        with g.scope("feed_forward"):
            y = feed_forward(g, y, self.expansion * x.size("hidden"), rate=self.dropout)
        return combine(g, x, dropout(g, y, self.dropout))

    def _window_attention(self, g: Builder, x: Value, heads: int, shift: int) -> Value:
        image = x.dims
        windows = (x.size("height") // self.window) ** 2
        bias = self._score_bias(g, heads, windows if shift else 0)
        if shift:
            x = copy(g, x)  # rolled
        shape = dims(sample=image[0].size, window=windows, sequence=self.window**2, hidden=image[-1].size)
        x = _moved(g, x, shape, windows)
        x = attend(g, x, heads, score_bias=bias, kernel="math", rate=self.dropout)
        x = _moved(g, x, image, windows)
        return copy(g, x) if shift else x

    def _score_bias(self, g: Builder, heads: int, windows: int) -> Value:
        """A number for each head and pair of places; with a mask of its own for each shifted window."""
        places = self.window**2
        index = g.buffer("index", dims(sequence=places, key=places), "int64")
        with g.scope("position_bias"):
            bias = embedding(g, index, (2 * self.window - 1) ** 2, dims(head=heads))
            bias = copy(g, view(g, bias, dims(head=heads, sequence=places, key=places), "transpose"))
        if not windows:
            return bias
        mask = g.buffer("mask", dims(window=windows, head=1, sequence=places, key=places))
        return combine(g, view(g, bias, (mask.dims[0], *bias.dims), "expand"), mask)


def _moved(g: Builder, x: Value, shape: tuple[Dim, ...], windows: int) -> Value:
    """From image to windows or back: a copy, unless one window is the whole image."""
    x = view(g, x, shape, "transpose")
    return copy(g, x) if windows > 1 else x


def _merge(g: Builder, x: Value) -> Value:
    """Two by two neighbours side by side, normalised and halved: half the sides, twice the features."""
    sample, height, width, hidden = x.dims
    quarter = dims(sample=sample.size, height=height.size // 2, width=width.size // 2, hidden=hidden.size)
    x = concatenate(g, [view(g, x, quarter, "slice") for _ in range(4)], "hidden")
    with g.scope("norm"):
        x = layer_norm(g, x)
    with g.scope("reduction"):
        return linear(g, x, dims(hidden=2 * hidden.size), bias=False)


PRESETS = {
    "swin": Swin(),
    "swin-t": Swin(),
    "swin-s": Swin(layers=(2, 2, 18, 2)),
    "swin-b": Swin(layers=(2, 2, 18, 2), heads=(4, 8, 16, 32), hidden=128),
    "swin-l": Swin(layers=(2, 2, 18, 2), heads=(6, 12, 24, 48), hidden=192),
}
