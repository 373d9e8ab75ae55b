"""VGG as a PyTorch module."""

from __future__ import annotations

import torch
from torch import nn

from foretell.model.zoo.vgg import Vgg
from foretell.modules.task import Example, images


class VggModule(nn.Module):
    """Stacks of 3x3 convolutions, halved by pooling, and three dense layers."""

    def __init__(self, fields: Vgg) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for count, filters in zip(fields.convolutions, fields.filters, strict=True):
            for _ in range(count):
                layers.append(nn.Conv2d(channels, filters, 3, padding=1))
                if fields.norm:
                    layers.append(nn.BatchNorm2d(filters))
                layers.append(nn.ReLU(inplace=True))
                channels = filters
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(fields.pooled)
        self.classifier = nn.Sequential(
            nn.Linear(channels * fields.pooled**2, fields.dense),
            nn.ReLU(inplace=True),
            nn.Dropout(fields.dropout),
            nn.Linear(fields.dense, fields.dense),
            nn.ReLU(inplace=True),
            nn.Dropout(fields.dropout),
            nn.Linear(fields.dense, fields.classes),
        )

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.avgpool(self.features(image))
        return self.classifier(x.flatten(1))


def module(fields: Vgg) -> nn.Module:
    return VggModule(fields)


def example(fields: Vgg, batch: int) -> Example:
    return images(batch, fields.image, fields.classes)
