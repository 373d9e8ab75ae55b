"""MobileNet v1, v2 and v3: depthwise convolutions between 1x1 convolutions."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec

from foretell.model.build import Builder, dims
from foretell.model.family import Count, Family, Rate
from foretell.model.operators.matmul import linear
from foretell.model.zoo import _task as task
from foretell.model.zoo._convolutional import (
    InvertedBlock,
    classify,
    conv_norm,
    function_of,
    inverted_residual,
    pooled_features,
    rounded,
)

SEPARABLE = (
    *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)),
    *((512, 1), (512, 1), (512, 1), (512, 1), (512, 1), (1024, 2), (1024, 1)),
)
"""v1, its Table 1: filters and stride of each depthwise separable convolution."""

INVERTED = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""v2, its Table 2: expansion, filters, repetitions, first stride."""

SEARCHED = {
    "v3-large": (
        (3, 16, 16, False, "relu", 1),
        (3, 64, 24, False, "relu", 2),
        (3, 72, 24, False, "relu", 1),
        (5, 72, 40, True, "relu", 2),
        (5, 120, 40, True, "relu", 1),
        (5, 120, 40, True, "relu", 1),
        (3, 240, 80, False, "hardswish", 2),
        (3, 200, 80, False, "hardswish", 1),
        (3, 184, 80, False, "hardswish", 1),
        (3, 184, 80, False, "hardswish", 1),
        (3, 480, 112, True, "hardswish", 1),
        (3, 672, 112, True, "hardswish", 1),
        (5, 672, 160, True, "hardswish", 2),
        (5, 960, 160, True, "hardswish", 1),
        (5, 960, 160, True, "hardswish", 1),
    ),
    "v3-small": (
        (3, 16, 16, True, "relu", 2),
        (3, 72, 24, False, "relu", 2),
        (3, 88, 24, False, "relu", 1),
        (5, 96, 40, True, "hardswish", 2),
        (5, 240, 40, True, "hardswish", 1),
        (5, 240, 40, True, "hardswish", 1),
        (5, 120, 48, True, "hardswish", 1),
        (5, 144, 48, True, "hardswish", 1),
        (5, 288, 96, True, "hardswish", 2),
        (5, 576, 96, True, "hardswish", 1),
        (5, 576, 96, True, "hardswish", 1),
    ),
}
"""v3, its Tables 1 and 2: kernel, expanded channels, filters, squeeze-excitation, activation, stride."""

FUNCTION = {"v1": "relu", "v2": "relu6", "v3-large": "hardswish", "v3-small": "hardswish"}
"""The activation outside the blocks."""

FEATURES = {"v1": 0, "v2": 0, "v3-large": 1280, "v3-small": 1024}
"""Width of a dense layer before the classifier; 0 is without."""


class Mobilenet(Family, frozen=True, kw_only=True):
    """`variant` is the network, `multiplier` scales the channels of all its layers."""

    references: ClassVar[tuple[str, ...]] = (
        "Howard et al. 2017, arXiv 1704.04861 (v1)",
        "Sandler et al. 2018, arXiv 1801.04381 (v2)",
        "Howard et al. 2019, arXiv 1905.02244 (v3)",
    )

    variant: Literal["v1", "v2", "v3-large", "v3-small"] = "v2"
    multiplier: Annotated[float, msgspec.Meta(gt=0.0, le=16.0)] = 1.0
    image: Count = 224
    classes: Count = 1000
    dropout: Rate = 0.2

    def stem(self) -> int:
        """Channels of the first convolution."""
        return rounded((16 if self.variant in SEARCHED else 32) * self.multiplier)

    def separable(self) -> list[tuple[int, int]]:
        """v1's blocks: filters and stride."""
        return [(rounded(filters * self.multiplier), stride) for filters, stride in SEPARABLE]

    def inverted(self) -> list[InvertedBlock]:
        """The blocks of v2 and v3."""
        if self.variant in SEARCHED:
            return [self._searched(*row) for row in SEARCHED[self.variant]]
        blocks: list[InvertedBlock] = []
        channels = self.stem()
        for expansion, filters, times, stride in INVERTED:
            for at in range(times):
                wide = rounded(filters * self.multiplier)
                blocks.append(InvertedBlock(3, channels * expansion, wide, stride if at == 0 else 1, "relu6"))
                channels = wide
        return blocks

    def _searched(
        self, kernel: int, expanded: int, filters: int, squeeze: bool, function: str, stride: int
    ) -> InvertedBlock:
        wide = rounded(expanded * self.multiplier)
        squeezed = rounded(wide // 4) if squeeze else 0
        return InvertedBlock(kernel, wide, rounded(filters * self.multiplier), stride, function, squeezed)

    def last(self) -> int:
        """Channels of the last convolution; 0 where there is none after the blocks (v1)."""
        if self.variant == "v1":
            return 0
        if self.variant == "v2":
            return rounded(1280 * max(1.0, self.multiplier))
        return 6 * self.inverted()[-1].filters

    def features(self) -> int:
        """Width of the dense layer before the classifier; 0 is without."""
        wide = FEATURES[self.variant]
        return rounded(wide * self.multiplier) if wide else 0

    def build(self, g: Builder, batch: int) -> None:
        function = FUNCTION[self.variant]
        x = conv_norm(g, task.images(g, batch, self.image), "stem", self.stem(), 3, stride=2, function=function)
        if self.variant == "v1":
            for at, (filters, stride) in enumerate(self.separable()):
                with g.scope(f"blocks.{at}"):
                    groups = x.size("channel")
                    x = conv_norm(g, x, "depthwise", groups, 3, stride=stride, groups=groups, function=function)
                    x = conv_norm(g, x, "pointwise", filters, function=function)
        else:
            for at, block in enumerate(self.inverted()):
                with g.scope(f"blocks.{at}"):
                    x = inverted_residual(g, x, block)
            x = conv_norm(g, x, "last", self.last(), function=function)
        x = pooled_features(g, x)
        if self.features():
            with g.scope("features"):
                with g.scope("linear"):
                    x = linear(g, x, dims(feature=self.features()))
                x = function_of(g, x, function)
        classify(g, x, self.classes, self.dropout)


PRESETS = {
    "mobilenet": Mobilenet(),
    "mobilenet-v1": Mobilenet(variant="v1", dropout=0.001),
    "mobilenet-v2": Mobilenet(variant="v2"),
    "mobilenet-v3-large": Mobilenet(variant="v3-large"),
    "mobilenet-v3-small": Mobilenet(variant="v3-small"),
}
