"""ResNet, ResNeXt and Wide ResNet as a PyTorch module."""

from __future__ import annotations

import torch
from torch import nn

from foretell.model.zoo.resnet import BlockConvolution, Resnet
from foretell.modules.task import Example, images


def _convolution(channels: int, layer: BlockConvolution) -> nn.Conv2d:
    return nn.Conv2d(
        channels,
        layer.filters,
        layer.kernel,
        layer.stride,
        padding=layer.kernel // 2,
        groups=layer.groups,
        bias=False,
    )


def _downsample(channels: int, filters: int, stride: int) -> nn.Module | None:
    """What brings a block's input to the shape of its output; None where it has it already."""
    if stride == 1 and channels == filters:
        return None
    return nn.Sequential(nn.Conv2d(channels, filters, 1, stride, bias=False), nn.BatchNorm2d(filters))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and the shortcut around them."""

    def __init__(self, channels: int, layers: tuple[BlockConvolution, ...], stride: int) -> None:
        super().__init__()
        first, second = layers
        self.conv1 = _convolution(channels, first)
        self.bn1 = nn.BatchNorm2d(first.filters)
        self.conv2 = _convolution(first.filters, second)
        self.bn2 = nn.BatchNorm2d(second.filters)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _downsample(channels, second.filters, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


class BottleneckBlock(nn.Module):
    """A 3x3 convolution between two 1x1 ones, and the shortcut around them."""

    def __init__(self, channels: int, layers: tuple[BlockConvolution, ...], stride: int) -> None:
        super().__init__()
        first, second, third = layers
        self.conv1 = _convolution(channels, first)
        self.bn1 = nn.BatchNorm2d(first.filters)
        self.conv2 = _convolution(first.filters, second)
        self.bn2 = nn.BatchNorm2d(second.filters)
        self.conv3 = _convolution(second.filters, third)
        self.bn3 = nn.BatchNorm2d(third.filters)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _downsample(channels, third.filters, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


class ResnetModule(nn.Module):
    """A strided 7x7 convolution, four stages of blocks, a dense layer over the mean."""

    def __init__(self, fields: Resnet) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        widths = [64, *(fields.layers_of(stage, 1)[-1].filters for stage in range(4))]
        self.layer1, self.layer2, self.layer3, self.layer4 = (
            _stage(fields, stage, channels) for stage, channels in enumerate(widths[:-1])
        )
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(widths[-1], fields.classes)
        for part in self.modules():
            if isinstance(part, nn.Conv2d):
                nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(image))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


def _stage(fields: Resnet, stage: int, channels: int) -> nn.Sequential:
    kind = BottleneckBlock if fields.bottleneck else BasicBlock
    blocks: list[nn.Module] = []
    for block in range(fields.blocks[stage]):
        stride = 2 if stage > 0 and block == 0 else 1
        layers = fields.layers_of(stage, stride)
        blocks.append(kind(channels, layers, stride))
        channels = layers[-1].filters
    return nn.Sequential(*blocks)


def module(fields: Resnet) -> nn.Module:
    return ResnetModule(fields)


def example(fields: Resnet, batch: int) -> Example:
    return images(batch, fields.image, fields.classes)
