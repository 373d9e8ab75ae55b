"""AlexNet as a PyTorch module."""

from __future__ import annotations

import torch
from torch import nn

from foretell.model.zoo.alexnet import KERNELS, NORMED, POOLED, Alexnet
from foretell.modules.task import Example, images


class AlexnetModule(nn.Module):
    """Five convolutions and three dense layers."""

    def __init__(self, fields: Alexnet) -> None:
        super().__init__()
        self.features = nn.Sequential(*_features(fields))
        self.avgpool = nn.AdaptiveAvgPool2d(6)
        self.classifier = nn.Sequential(
            nn.Dropout(fields.dropout),
            nn.Linear(fields.filters[-1] * 6 * 6, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(fields.dropout),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
            nn.Linear(4096, fields.classes),
        )

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.avgpool(self.features(image))
        return self.classifier(x.flatten(1))


def _features(fields: Alexnet) -> list[nn.Module]:
    layers: list[nn.Module] = []
    channels = 3
    for layer, (filters, kernel) in enumerate(zip(fields.filters, KERNELS, strict=True)):
        stride, padding = (4, 2) if layer == 0 else (1, kernel // 2)
        layers.append(nn.Conv2d(channels, filters, kernel, stride, padding, groups=fields.groups_of(layer)))
        layers.append(nn.ReLU(inplace=True))
        if fields.norm and layer in NORMED:
            layers.append(nn.LocalResponseNorm(5, k=2.0))
        if layer in POOLED:
            layers.append(nn.MaxPool2d(3, stride=2))
        channels = filters
    return layers


def module(fields: Alexnet) -> nn.Module:
    return AlexnetModule(fields)


def example(fields: Alexnet, batch: int) -> Example:
    return images(batch, fields.image, fields.classes)
