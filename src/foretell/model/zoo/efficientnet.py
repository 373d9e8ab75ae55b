"""EfficientNet: inverted residuals with squeeze-excitation, scaled in width, depth and image together."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

import msgspec

from foretell.model.build import Builder
from foretell.model.family import Count, Family, Rate
from foretell.model.zoo import _task as task
from foretell.model.zoo._convolutional import (
    InvertedBlock,
    classify,
    conv_norm,
    inverted_residual,
    pooled_features,
    rounded,
)

Scale = Annotated[float, msgspec.Meta(gt=0.0, le=16.0)]

STAGES = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)
"""Table 1 of the paper: expansion, kernel, first stride, filters, repetitions."""


class Efficientnet(Family, frozen=True, kw_only=True):
    """B0 with `wider` times the channels and `deeper` times the layers, both rounded.

    `stochastic_depth` is the rate at which samples skip the last block; it grows evenly to there.
    """

    references: ClassVar[tuple[str, ...]] = ("Tan, Le 2019, arXiv 1905.11946",)

    wider: Scale = 1.0
    deeper: Scale = 1.0
    image: Count = 224
    classes: Count = 1000
    dropout: Rate = 0.2
    stochastic_depth: Rate = 0.0

    def stem(self) -> int:
        """Channels of the first convolution."""
        return rounded(32 * self.wider)

    def blocks(self) -> list[InvertedBlock]:
        """Every inverted block; squeeze-excitation has a quarter of the block's input channels inside."""
        blocks: list[InvertedBlock] = []
        channels = self.stem()
        for expansion, kernel, first, filters, times in STAGES:
            for at in range(math.ceil(times * self.deeper)):
                expanded, wide = rounded(channels * expansion), rounded(filters * self.wider)
                stride, squeezed = first if at == 0 else 1, max(1, channels // 4)
                blocks.append(InvertedBlock(kernel, expanded, wide, stride, "silu", squeezed, ("silu", "sigmoid")))
                channels = wide
        return blocks

    def drops(self) -> list[float]:
        """The rate at which samples skip each block."""
        count = len(self.blocks())
        return [self.stochastic_depth * at / count for at in range(count)]

    def last(self) -> int:
        """Channels of the last convolution."""
        return 4 * self.blocks()[-1].filters

    def build(self, g: Builder, batch: int) -> None:
        x = conv_norm(g, task.images(g, batch, self.image), "stem", self.stem(), 3, stride=2, function="silu")
        for at, (block, drop) in enumerate(zip(self.blocks(), self.drops(), strict=True)):
            with g.scope(f"blocks.{at}"):
                x = inverted_residual(g, x, block, drop)
        x = conv_norm(g, x, "last", self.last(), function="silu")
        classify(g, pooled_features(g, x), self.classes, self.dropout)


PRESETS = {
    "efficientnet": Efficientnet(),
    "efficientnet-b0": Efficientnet(),
    "efficientnet-b1": Efficientnet(deeper=1.1, image=240),
    "efficientnet-b2": Efficientnet(wider=1.1, deeper=1.2, image=260, dropout=0.3),
    "efficientnet-b3": Efficientnet(wider=1.2, deeper=1.4, image=300, dropout=0.3),
    "efficientnet-b4": Efficientnet(wider=1.4, deeper=1.8, image=380, dropout=0.4),
    "efficientnet-b5": Efficientnet(wider=1.6, deeper=2.2, image=456, dropout=0.4),
    "efficientnet-b6": Efficientnet(wider=1.8, deeper=2.6, image=528, dropout=0.5),
    "efficientnet-b7": Efficientnet(wider=2.0, deeper=3.1, image=600, dropout=0.5),
}
