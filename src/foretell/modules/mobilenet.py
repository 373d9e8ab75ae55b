"""MobileNet v1, v2 and v3 as PyTorch modules."""

from __future__ import annotations

import torch
from torch import nn

from foretell.model.zoo.mobilenet import FUNCTION, Mobilenet
from foretell.modules._convolutional import FUNCTIONS, ConvNorm, InvertedResidual
from foretell.modules.task import Example, images


class Separable(nn.Module):
    """A depthwise convolution, then a 1x1 one."""

    def __init__(self, channels: int, filters: int, stride: int, function: str) -> None:
        super().__init__()
        self.depthwise = ConvNorm(channels, channels, 3, stride=stride, groups=channels, function=function)
        self.pointwise = ConvNorm(channels, filters, function=function)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pointwise(self.depthwise(x))


class Features(nn.Module):
    """The dense layer before v3's classifier."""

    def __init__(self, features: int, width: int, function: str) -> None:
        super().__init__()
        self.linear = nn.Linear(features, width)
        self.activation = FUNCTIONS[function]()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.activation(self.linear(x))


class MobilenetModule(nn.Module):
    """A strided convolution, depthwise blocks, the mean of every channel, and a classifier."""

    def __init__(self, fields: Mobilenet) -> None:
        super().__init__()
        function = FUNCTION[fields.variant]
        channels = fields.stem()
        self.stem = ConvNorm(3, channels, 3, stride=2, function=function)
        blocks: list[nn.Module] = []
        if fields.variant == "v1":
            for filters, stride in fields.separable():
                blocks.append(Separable(channels, filters, stride, function))
                channels = filters
        else:
            for block in fields.inverted():
                blocks.append(InvertedResidual(channels, block))
                channels = block.filters
        self.blocks = nn.Sequential(*blocks)
        last = fields.last()
        self.last = ConvNorm(channels, last, function=function) if last else nn.Identity()
        self.pool = nn.AdaptiveAvgPool2d(1)
        wide = fields.features()
        self.features = Features(last, wide, function) if wide else nn.Identity()
        self.dropout = nn.Dropout(fields.dropout)
        self.classifier = nn.Linear(wide or last or channels, fields.classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.last(self.blocks(self.stem(image)))).flatten(1)
        return self.classifier(self.dropout(self.features(x)))


def module(fields: Mobilenet) -> nn.Module:
    return MobilenetModule(fields)


def example(fields: Mobilenet, batch: int) -> Example:
    return images(batch, fields.image, fields.classes)
