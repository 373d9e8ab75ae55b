"""ResNet, ResNeXt and Wide ResNet: blocks of convolutions whose input is added to their output."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from foretell.errors import BadInput
from foretell.model.build import Builder, Value, dims
from foretell.model.family import Count, Family
from foretell.model.operators.convolution import convolution
from foretell.model.operators.elementwise import activation, combine
from foretell.model.operators.layout import view
from foretell.model.operators.matmul import linear
from foretell.model.operators.normalization import batch_norm
from foretell.model.operators.pooling import adaptive_average_pool, pool
from foretell.model.zoo import _task as task

STAGES = (64, 128, 256, 512)
"""Filters of the four stages, before a bottleneck's last convolution makes four times as many."""


class BlockConvolution(NamedTuple):
    """One convolution of a block."""

    filters: int
    kernel: int
    stride: int = 1
    groups: int = 1


class Resnet(Family, frozen=True, kw_only=True):
    """Four stages of `blocks`: two 3x3 convolutions each, or a 3x3 between two 1x1 (`bottleneck`).

    The 3x3 of a bottleneck has `groups` groups of `width` filters in the first stage, and twice
    as many in each next one. `strided_1x1` puts the stride on the first convolution, as the
    paper has it, and not on the 3x3.
    """

    references: ClassVar[tuple[str, ...]] = (
        "He, Zhang, Ren, Sun 2016, arXiv 1512.03385",
        "Xie, Girshick, Dollar, Tu, He 2017, arXiv 1611.05431 (ResNeXt)",
        "Zagoruyko, Komodakis 2016, arXiv 1605.07146 (Wide ResNet)",
    )

    blocks: tuple[Count, Count, Count, Count] = (3, 4, 6, 3)
    bottleneck: bool = True
    groups: Count = 1
    width: Count = 64
    strided_1x1: bool = False
    image: Count = 224
    classes: Count = 1000

    def check(self) -> None:
        if not self.bottleneck and (self.groups, self.width, self.strided_1x1) != (1, 64, False):
            what = f"blocks without a bottleneck have no 1x1 and one group of 64, not {self.groups} of {self.width}"
            raise BadInput(what, fix="bottleneck=true, or groups=1, width=64, strided_1x1=false")

    def layers_of(self, stage: int, stride: int) -> tuple[BlockConvolution, ...]:
        """The convolutions of a block of this stage (from 0)."""
        filters = STAGES[stage]
        if not self.bottleneck:
            return BlockConvolution(filters, 3, stride), BlockConvolution(filters, 3)
        inner = self.width * 2**stage * self.groups
        first, second = (stride, 1) if self.strided_1x1 else (1, stride)
        return (
            BlockConvolution(inner, 1, first),
            BlockConvolution(inner, 3, second, self.groups),
            BlockConvolution(4 * filters, 1),
        )

    def build(self, g: Builder, batch: int) -> None:
        x = task.images(g, batch, self.image)
        with g.scope("conv1"):
            x = convolution(g, x, 64, 7, stride=2, padding=3, bias=False)
        with g.scope("bn1"):
            x = batch_norm(g, x)
        with g.scope("relu"):
            x = activation(g, x, "relu", inplace=True)
        with g.scope("maxpool"):
            x = pool(g, x, "max", 3, stride=2, padding=1)
        for stage, count in enumerate(self.blocks):
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 else 1
                with g.scope(f"layer{stage + 1}.{block}"):
                    x = _block(g, x, self.layers_of(stage, stride), stride)
        with g.scope("avgpool"):
            x = adaptive_average_pool(g, x, 1)
        x = view(g, x, dims(sample=batch, feature=x.size("channel")))
        with g.scope("fc"):
            x = linear(g, x, dims(class_=self.classes))
        task.class_loss(g, x)


def _block(g: Builder, x: Value, layers: tuple[BlockConvolution, ...], stride: int) -> Value:
    shortcut = x
    for at, layer in enumerate(layers, start=1):
        if at > 1:
            with g.scope("relu"):
                x = activation(g, x, "relu", inplace=True)
        with g.scope(f"conv{at}"):
            x = convolution(
                g,
                x,
                layer.filters,
                layer.kernel,
                stride=layer.stride,
                padding=layer.kernel // 2,
                groups=layer.groups,
                bias=False,
            )
        with g.scope(f"bn{at}"):
            x = batch_norm(g, x)
    if stride > 1 or shortcut.size("channel") != x.size("channel"):
        with g.scope("downsample.0"):
            shortcut = convolution(g, shortcut, x.size("channel"), 1, stride=stride, bias=False)
        with g.scope("downsample.1"):
            shortcut = batch_norm(g, shortcut)
    x = combine(g, x, shortcut, "add", inplace=True)
    with g.scope("relu"):
        return activation(g, x, "relu", inplace=True)


_DEEP = (3, 4, 23, 3)

PRESETS = {
    "resnet": Resnet(),
    "resnet18": Resnet(blocks=(2, 2, 2, 2), bottleneck=False),
    "resnet34": Resnet(blocks=(3, 4, 6, 3), bottleneck=False),
    "resnet50": Resnet(),
    "resnet101": Resnet(blocks=_DEEP),
    "resnet152": Resnet(blocks=(3, 8, 36, 3)),
    "resnext50-32x4d": Resnet(groups=32, width=4),
    "resnext101-32x8d": Resnet(blocks=_DEEP, groups=32, width=8),
    "resnext101-64x4d": Resnet(blocks=_DEEP, groups=64, width=4),
    "wide-resnet50-2": Resnet(width=128),
    "wide-resnet101-2": Resnet(blocks=_DEEP, width=128),
}
