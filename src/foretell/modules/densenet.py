"""DenseNet as a PyTorch module."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import nn

from foretell.model.zoo.densenet import Densenet
from foretell.modules.task import Example, images


class DenseLayer(nn.Module):
    """A 1x1 and a 3x3 convolution; what they make is laid beside what they were given."""

    def __init__(self, channels: int, fields: Densenet) -> None:
        super().__init__()
        inner = fields.bottleneck * fields.growth
        self.norm1 = nn.BatchNorm2d(channels)
        self.relu1 = nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(channels, inner, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(inner)
        self.relu2 = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(inner, fields.growth, 3, padding=1, bias=False)
        self.dropout = nn.Dropout(fields.dropout) if fields.dropout else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        new = self.conv1(self.relu1(self.norm1(x)))
        new = self.conv2(self.relu2(self.norm2(new)))
        return torch.cat([x, self.dropout(new)], dim=1)


def _stem(filters: int) -> nn.Sequential:
    parts = {
        "conv": nn.Conv2d(3, filters, 7, stride=2, padding=3, bias=False),
        "norm": nn.BatchNorm2d(filters),
        "relu": nn.ReLU(inplace=True),
        "pool": nn.MaxPool2d(3, stride=2, padding=1),
    }
    return nn.Sequential(OrderedDict(parts))


def _transition(channels: int) -> nn.Sequential:
    """Half the channels, half the height and width."""
    parts = {
        "norm": nn.BatchNorm2d(channels),
        "relu": nn.ReLU(inplace=True),
        "conv": nn.Conv2d(channels, channels // 2, 1, bias=False),
        "pool": nn.AvgPool2d(2),
    }
    return nn.Sequential(OrderedDict(parts))


class DensenetModule(nn.Module):
    """Blocks of layers that each see all before them, with transitions between."""

    def __init__(self, fields: Densenet) -> None:
        super().__init__()
        self.stem = _stem(fields.filters)
        self.blocks = nn.ModuleList()
        self.transitions = nn.ModuleList()
        channels = fields.filters
        for block, count in enumerate(fields.layers):
            layers = (DenseLayer(channels + layer * fields.growth, fields) for layer in range(count))
            self.blocks.append(nn.Sequential(*layers))
            channels += count * fields.growth
            if block < 3:
                self.transitions.append(_transition(channels))
                channels //= 2
        self.norm = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(channels, fields.classes)
        for part in self.modules():
            if isinstance(part, nn.Conv2d):
                nn.init.kaiming_normal_(part.weight)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.blocks[0](self.stem(image))
        for transition, block in zip(self.transitions, self.blocks[1:], strict=True):
            x = block(transition(x))
        x = self.avgpool(self.relu(self.norm(x)))
        return self.classifier(x.flatten(1))


def module(fields: Densenet) -> nn.Module:
    return DensenetModule(fields)


def example(fields: Densenet, batch: int) -> Example:
    return images(batch, fields.image, fields.classes)
