"""ConvNeXt as a PyTorch module."""

from __future__ import annotations

import torch
from torch import nn

from foretell.model.zoo.convnext import Convnext
from foretell.modules._convolutional import DropSamples
from foretell.modules.task import Example, images


class ChannelNorm(nn.LayerNorm):
    """Layer norm over the channels of x[sample, channel, height, width]."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class LayerScale(nn.Module):
    """Every channel times a trained factor, small at first."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((channels,), 1e-6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight[:, None, None]


class Downsample(nn.Module):
    """Patches: 4x4 and then normed in the first stage, normed and then 2x2 in the others."""

    def __init__(self, channels: int, filters: int, first: bool) -> None:
        super().__init__()
        size = 4 if first else 2
        self.first = first
        self.norm = ChannelNorm(filters if first else channels, eps=1e-6)
        self.conv = nn.Conv2d(channels, filters, size, stride=size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(x)) if self.first else self.conv(self.norm(x))


class ConvNextBlock(nn.Module):
    """A depthwise convolution and two dense layers over the channels, added to the input."""

    def __init__(self, channels: int, drop: float) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.up = nn.Linear(channels, 4 * channels)
        self.activation = nn.GELU()
        self.down = nn.Linear(4 * channels, channels)
        self.scale = LayerScale(channels)
        self.drop = DropSamples(drop)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.down(self.activation(self.up(y)))
        return self.drop(self.scale(y.permute(0, 3, 1, 2))) + x


class ConvnextModule(nn.Module):
    """Four stages of blocks, each after a convolution that shrinks the image."""

    def __init__(self, fields: Convnext) -> None:
        super().__init__()
        self.downsamples = nn.ModuleList()
        self.stages = nn.ModuleList()
        channels = 3
        for stage in range(len(fields.blocks)):
            filters = fields.width * 2**stage
            self.downsamples.append(Downsample(channels, filters, first=stage == 0))
            self.stages.append(nn.Sequential(*(ConvNextBlock(filters, drop) for drop in fields.drops(stage))))
            channels = filters
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.classifier = nn.Linear(channels, fields.classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = image
        for downsample, stage in zip(self.downsamples, self.stages, strict=True):
            x = stage(downsample(x))
        return self.classifier(self.norm(self.pool(x).flatten(1)))


def module(fields: Convnext) -> nn.Module:
    return ConvnextModule(fields)


def example(fields: Convnext, batch: int) -> Example:
    return images(batch, fields.image, fields.classes)
