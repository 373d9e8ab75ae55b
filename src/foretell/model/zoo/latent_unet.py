"""The U-Net of latent diffusion: residual blocks told the time step, and transformers that look at a text.

As diffusers has it (UNet2DConditionModel): a path down, a middle, a path up that reads every output of the path down.
The text goes in as features; what made them, and the coder of images, are left out, as training holds them still. The
loss is that of the noise.
"""

from __future__ import annotations

from typing import ClassVar

from foretell.errors import BadInput
from foretell.model.build import Builder, Value, dims
from foretell.model.dims import Dim
from foretell.model.family import Count, Family, Index
from foretell.model.operators.broadcast import broadcast
from foretell.model.operators.convolution import convolution
from foretell.model.operators.elementwise import activation, cast, combine
from foretell.model.operators.layout import concatenate, split, view
from foretell.model.operators.matmul import linear
from foretell.model.operators.normalization import group_norm, layer_norm
from foretell.model.operators.resampling import upsample
from foretell.model.operators.squared_error import squared_error
from foretell.model.zoo._encoder import OUTPUT_ALONE, attend, tokens_of
from foretell.model.zoo._task import images

GROUPS = 32
"""Of every group norm."""


class LatentUnet(Family, frozen=True, kw_only=True):
    """`image` is the side of a latent image: an eighth of the picture's. One number a level of `width` and of the rest.

    A level's `depth` is how many layers each of its transformers has (0: it has none), `heads` how many heads. `added`
    features of sizes and crops are told beside the time step (0: none). `dense` maps places by a dense layer where the
    first version has a convolution of one place.
    """

    references: ClassVar[tuple[str, ...]] = (
        "Rombach et al. 2022 (latent diffusion), arXiv 2112.10752",
        "Podell et al. 2023 (SDXL), arXiv 2307.01952",
    )

    width: tuple[Count, ...] = (320, 640, 1280, 1280)
    depth: tuple[Index, ...] = (1, 1, 1, 0)
    heads: tuple[Count, ...] = (8, 8, 8, 8)
    blocks: Count = 2
    image: Count = 64
    channels: Count = 4
    text: Count = 768
    seq: Count = 77
    added: Index = 0
    dense: bool = False
    attention: str = "flash"

    def check(self) -> None:
        lengths = {len(self.width), len(self.depth), len(self.heads)}
        if len(lengths) > 1 or not self.width:
            what = f"width, depth and heads have {len(self.width)}, {len(self.depth)} and {len(self.heads)} levels"
            raise BadInput(what, fix="one number a level: width=64/128,depth=1/1,heads=2/4")
        for width, heads in zip(self.width, self.heads, strict=True):
            if width % GROUPS or width % heads:
                what = f"width={width} is no multiple of {GROUPS} groups and of {heads} heads"
                raise BadInput(what, fix=f"width={max(1, round(width / GROUPS)) * GROUPS}, heads that divide it")
        halved = 2 ** (len(self.width) - 1)
        if self.image % halved:
            near = max(1, round(self.image / halved)) * halved
            raise BadInput(f"image={self.image} is not halved {len(self.width) - 1} times", fix=f"image={near}")

    @property
    def told(self) -> int:
        """Features of the time step, as blocks are told it."""
        return 4 * self.width[0]

    @property
    def deepest(self) -> int:
        """Layers of the transformer in the middle: as many as the last level that has any."""
        return next((depth for depth in reversed(self.depth) if depth), 1)

    def entering(self, level: int, block: int) -> tuple[int, int]:
        """Channels that a block of the path up gets from below, and those of the skip that it reads."""
        levels = len(self.width)
        down = [self.width[0]]
        for at, width in enumerate(self.width):
            down += [width] * (self.blocks + (at < levels - 1))
        taken = (levels - 1 - level) * (self.blocks + 1) + block
        above = self.width[min(level + 1, levels - 1)] if block == 0 else self.width[level]
        return above, down[-1 - taken]

    def build(self, g: Builder, batch: int) -> None:
        image = images(g, batch, self.image, self.channels)
        told = activation(g, self._told(g, batch), "silu")
        text = g.input("text", dims(sample=batch, text=self.seq, feature=self.text))
        with g.scope("enter"):
            x = convolution(g, image, self.width[0], 3, padding=1)
        skips = [x]
        for level, width in enumerate(self.width):
            for block in range(self.blocks):
                with g.scope(f"down.{level}.{block}"):
                    x = self._block(g, x, told, text, width, level)
                skips.append(x)
            if level < len(self.width) - 1:
                with g.scope(f"down.{level}.{self.blocks}"):
                    x = convolution(g, x, width, 3, stride=2, padding=1)
                skips.append(x)
        with g.scope("middle"):
            x = self._middle(g, x, told, text)
        for level in range(len(self.width) - 1, -1, -1):
            for block in range(self.blocks + 1):
                with g.scope(f"up.{level}.{block}"):
                    x = concatenate(g, [x, skips.pop()], "channel")
                    x = self._block(g, x, told, text, self.width[level], level)
            if level:
                with g.scope(f"up.{level}.{self.blocks + 1}"):
                    x = convolution(g, upsample(g, x, 2), self.width[level], 3, padding=1)
        with g.scope("norm"):
            x = activation(g, group_norm(g, x, GROUPS), "silu")
        with g.scope("leave"):
            x = convolution(g, x, self.channels, 3, padding=1)
        target = g.input("target", x.dims, "fp32")
        with g.scope("loss"):
            squared_error(g, cast(g, x, "fp32"), target)

    def _told(self, g: Builder, batch: int) -> Value:
        """The time step, and sizes where they are told: [sample, told]."""
        found: Value | None = None
        for name, size in (("time", self.width[0]), ("added", self.added)):
            if not size:
                continue
            x = g.input(name, dims(sample=batch, wave=size))
            with g.scope(f"{name}.up"):
                x = activation(g, linear(g, x, dims(told=self.told)), "silu")
            with g.scope(f"{name}.down"):
                x = linear(g, x, dims(told=self.told))
            found = combine(g, found, x) if found else x
        assert found
        return found

    def _block(self, g: Builder, x: Value, told: Value, text: Value, width: int, level: int) -> Value:
        with g.scope("residual"):
            x = _residual(g, x, told, width)
        if not self.depth[level]:
            return x
        with g.scope("look"):
            return self._look(g, x, text, self.depth[level], self.heads[level])

    def _middle(self, g: Builder, x: Value, told: Value, text: Value) -> Value:
        with g.scope("first"):
            x = _residual(g, x, told, self.width[-1])
        with g.scope("look"):
            x = self._look(g, x, text, self.deepest, self.heads[-1])
        with g.scope("second"):
            return _residual(g, x, told, self.width[-1])

    def _look(self, g: Builder, x: Value, text: Value, depth: int, heads: int) -> Value:
        """Places look at each other and at the text, around a shortcut."""
        with g.scope("norm"):
            y = group_norm(g, x, GROUPS)
        with g.scope("enter"):
            y = self._mapped(g, y, "in")
        for layer in range(depth):
            with g.scope(f"layers.{layer}"):
                y = self._layer(g, y, text, heads)
        with g.scope("leave"):
            y = self._mapped(g, y, "out", x)
        return combine(g, y, x)

    def _mapped(self, g: Builder, x: Value, way: str, like: Value | None = None) -> Value:
        """Channels to features of places, or back: dense, or by a convolution of one place."""
        if way == "in":
            if self.dense:
                x = tokens_of(g, x)
                return linear(g, x, x.dims[-1:])
            return tokens_of(g, convolution(g, x, x.size("channel"), 1))
        assert like
        if self.dense:
            x = linear(g, x, x.dims[-1:])
        x = view(g, x, like.dims, "transpose")
        return x if self.dense else convolution(g, x, x.size("channel"), 1)

    def _layer(self, g: Builder, x: Value, text: Value, heads: int) -> Value:
        for name, memory in (("attention", None), ("cross_attention", text)):
            with g.scope(f"{name}_norm"):
                y = layer_norm(g, x)
            with g.scope(name):
                y = attend(g, y, heads, memory=memory, bias=OUTPUT_ALONE, kernel=self.attention)
            x = combine(g, y, x)
        with g.scope("feed_forward_norm"):
            y = layer_norm(g, x)
        width = x.size("hidden")
        with g.scope("feed_forward.up"):
            y = linear(g, y, (Dim("ffn", 8 * width),))
        value, gate = split(g, y, "ffn", (4 * width, 4 * width))
        y = combine(g, value, activation(g, gate, "gelu"), "multiply")
        with g.scope("feed_forward.down"):
            return combine(g, linear(g, y, x.dims[-1:]), x)


def _residual(g: Builder, x: Value, told: Value, width: int) -> Value:
    """Two convolutions behind norms, the time step added between them, around a shortcut."""
    with g.scope("first_norm"):
        y = activation(g, group_norm(g, x, GROUPS), "silu")
    with g.scope("first"):
        y = convolution(g, y, width, 3, padding=1)
    with g.scope("told"):
        shift = linear(g, told, dims(channel=width))
    y = broadcast(g, y, shift, "add")
    with g.scope("second_norm"):
        y = activation(g, group_norm(g, y, GROUPS), "silu")
    with g.scope("second"):
        y = convolution(g, y, width, 3, padding=1)
    if x.size("channel") != width:
        with g.scope("shortcut"):
            x = convolution(g, x, width, 1)
    return combine(g, x, y)


_XL = LatentUnet(
    width=(320, 640, 1280), depth=(0, 2, 10), heads=(5, 10, 20), image=128, text=2048, added=2816, dense=True
)

PRESETS = {
    "latent_unet": LatentUnet(),
    "sd-1.5": LatentUnet(),
    "sd-2.1": LatentUnet(heads=(5, 10, 20, 20), text=1024, dense=True, image=96),
    "sdxl": _XL,
}
