"""EfficientNet as a PyTorch module."""

from __future__ import annotations

import torch
from torch import nn

from foretell.model.zoo.efficientnet import Efficientnet
from foretell.modules._convolutional import ConvNorm, InvertedResidual
from foretell.modules.task import Example, images


class EfficientnetModule(nn.Module):
    """A strided convolution, inverted residuals, the mean of every channel, and a classifier."""

    def __init__(self, fields: Efficientnet) -> None:
        super().__init__()
        channels = fields.stem()
        self.stem = ConvNorm(3, channels, 3, stride=2, function="silu")
        blocks: list[nn.Module] = []
        for block, drop in zip(fields.blocks(), fields.drops(), strict=True):
            blocks.append(InvertedResidual(channels, block, drop))
            channels = block.filters
        self.blocks = nn.Sequential(*blocks)
        self.last = ConvNorm(channels, fields.last(), function="silu")
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(fields.dropout)
        self.classifier = nn.Linear(fields.last(), fields.classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.last(self.blocks(self.stem(image))))
        return self.classifier(self.dropout(x.flatten(1)))


def module(fields: Efficientnet) -> nn.Module:
    return EfficientnetModule(fields)


def example(fields: Efficientnet, batch: int) -> Example:
    return images(batch, fields.image, fields.classes)
