"""IResNet as a PyTorch module."""

from __future__ import annotations

import torch
from torch import nn

from foretell.model.zoo.iresnet import HALVED, STAGES, Iresnet
from foretell.modules.task import Example, images


class FaceBlock(nn.Module):
    """Norm, convolution, norm, slopes, convolution, norm; and the shortcut around them."""

    def __init__(self, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, filters, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(filters)
        self.prelu = nn.PReLU(filters)
        self.conv2 = nn.Conv2d(filters, filters, 3, stride, padding=1, bias=False)
        self.bn3 = nn.BatchNorm2d(filters)
        self.downsample = nn.Identity()
        if stride > 1:
            narrowed = nn.Conv2d(channels, filters, 1, stride, bias=False)
            self.downsample = nn.Sequential(narrowed, nn.BatchNorm2d(filters))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv2(self.prelu(self.bn2(self.conv1(self.bn1(x)))))
        y = self.bn3(y)
        y += self.downsample(x)
        return y


class IresnetModule(nn.Module):
    """A convolution, four stages of blocks, an embedding, and scores of all persons."""

    def __init__(self, fields: Iresnet) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, STAGES[0], 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(STAGES[0])
        self.prelu = nn.PReLU(STAGES[0])
        widths = (STAGES[0], *STAGES)
        self.layer1, self.layer2, self.layer3, self.layer4 = (
            _stage(channels, filters, count)
            for channels, filters, count in zip(widths, STAGES, fields.blocks, strict=False)
        )
        self.bn2 = nn.BatchNorm2d(STAGES[-1])
        self.fc = nn.Linear(STAGES[-1] * (fields.image // HALVED) ** 2, fields.embedding)
        self.features = nn.BatchNorm1d(fields.embedding)
        self.head = nn.Linear(fields.embedding, fields.classes, bias=False)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.prelu(self.bn1(self.conv1(image)))
        x = self.bn2(self.layer4(self.layer3(self.layer2(self.layer1(x)))))
        return self.head(self.features(self.fc(x.flatten(1))))


def _stage(channels: int, filters: int, count: int) -> nn.Sequential:
    first = FaceBlock(channels, filters, 2)
    return nn.Sequential(first, *(FaceBlock(filters, filters, 1) for _ in range(count - 1)))


def module(fields: Iresnet) -> nn.Module:
    return IresnetModule(fields)


def example(fields: Iresnet, batch: int) -> Example:
    return images(batch, fields.image, fields.classes)
