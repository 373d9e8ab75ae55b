"""ConvNeXt: 7x7 depthwise convolutions and transformer-style dense layers, with layer norm over channels."""

from __future__ import annotations

from typing import ClassVar

from foretell.model.build import Builder, Value, dims
from foretell.model.family import Count, Family, Rate
from foretell.model.operators.broadcast import broadcast
from foretell.model.operators.convolution import convolution
from foretell.model.operators.dropout import stochastic_depth
from foretell.model.operators.elementwise import activation, combine
from foretell.model.operators.layout import view
from foretell.model.operators.matmul import linear
from foretell.model.operators.normalization import layer_norm
from foretell.model.zoo import _task as task
from foretell.model.zoo._convolutional import classify, pooled_features


class Convnext(Family, frozen=True, kw_only=True):
    """Four stages of `blocks`, the first with `width` channels, each next one with twice as many.

    `stochastic_depth` is the rate at which samples skip the last block; it grows evenly to there.
    """

    references: ClassVar[tuple[str, ...]] = ("Liu et al. 2022, arXiv 2201.03545",)

    width: Count = 96
    blocks: tuple[Count, Count, Count, Count] = (3, 3, 9, 3)
    image: Count = 224
    classes: Count = 1000
    stochastic_depth: Rate = 0.0

    def drops(self, stage: int) -> list[float]:
        """The rate at which samples skip each block of this stage (from 0)."""
        before, last = sum(self.blocks[:stage]), sum(self.blocks) - 1
        return [self.stochastic_depth * (before + at) / max(1, last) for at in range(self.blocks[stage])]

    def build(self, g: Builder, batch: int) -> None:
        x = task.images(g, batch, self.image)
        for stage in range(len(self.blocks)):
            x = _shrunk(g, x, stage, self.width * 2**stage)
            for at, drop in enumerate(self.drops(stage)):
                with g.scope(f"stages.{stage}.{at}"):
                    x = _block(g, x, drop)
        x = pooled_features(g, x)
        with g.scope("norm"):
            x = layer_norm(g, x)
        classify(g, x, self.classes, rate=0.0)


def _shrunk(g: Builder, x: Value, stage: int, filters: int) -> Value:
    """The patches that a stage begins with: 4x4 and then normed, later normed and then 2x2."""
    if stage == 0:
        with g.scope("downsamples.0.conv"):
            x = convolution(g, x, filters, 4, stride=4)
        with g.scope("downsamples.0.norm"):
            return _channels_inside(g, layer_norm(g, _channels_last(g, x)))
    with g.scope(f"downsamples.{stage}.norm"):
        x = _channels_inside(g, layer_norm(g, _channels_last(g, x)))
    with g.scope(f"downsamples.{stage}.conv"):
        return convolution(g, x, filters, 2, stride=2)


def _block(g: Builder, x: Value, drop: float) -> Value:
    shortcut, channel = x, x.dim("channel")
    with g.scope("depthwise"):
        x = convolution(g, x, channel.size, 7, padding=3, groups=channel.size)
    x = _channels_last(g, x)
    with g.scope("norm"):
        x = layer_norm(g, x)
    with g.scope("up"):
        x = linear(g, x, dims(ffn=4 * channel.size))
    with g.scope("activation"):
        x = activation(g, x, "gelu")
    with g.scope("down"):
        x = linear(g, x, (channel,))
    x = _channels_inside(g, x)
    with g.scope("scale"):
        x = broadcast(g, x, g.parameter("weight", (channel,)), "multiply", weight=True)
    with g.scope("drop"):
        x = stochastic_depth(g, x, drop)
    return combine(g, x, shortcut)


def _channels_last(g: Builder, x: Value) -> Value:
    sample, channel, *space = x.dims
    return view(g, x, (sample, *space, channel), "transpose")


def _channels_inside(g: Builder, x: Value) -> Value:
    sample, *space, channel = x.dims
    return view(g, x, (sample, channel, *space), "transpose")


PRESETS = {
    "convnext": Convnext(),
    "convnext-tiny": Convnext(),
    "convnext-small": Convnext(blocks=(3, 3, 27, 3)),
    "convnext-base": Convnext(width=128, blocks=(3, 3, 27, 3)),
    "convnext-large": Convnext(width=192, blocks=(3, 3, 27, 3)),
}
