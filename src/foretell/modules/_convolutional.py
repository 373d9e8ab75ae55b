"""What efficient convolutional networks share, as PyTorch modules."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from foretell.model.zoo._convolutional import InvertedBlock

FUNCTIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": partial(nn.ReLU, inplace=True),
    "relu6": nn.ReLU6,
    "silu": nn.SiLU,
    "hardswish": nn.Hardswish,
    "sigmoid": nn.Sigmoid,
    "hardsigmoid": nn.Hardsigmoid,
}


class ConvNorm(nn.Module):
    """A convolution that keeps the size (but for its stride), batch norm, and perhaps an activation."""

    def __init__(
        self,
        channels: int,
        filters: int,
        kernel: int = 1,
        *,
        stride: int = 1,
        groups: int = 1,
        function: str = "",
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, kernel, stride, kernel // 2, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(filters)
        self.activation = FUNCTIONS[function]() if function else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.activation(self.norm(self.conv(x)))


class PointwiseFunction(nn.Module):
    """A 1x1 convolution with bias, and an activation."""

    def __init__(self, channels: int, filters: int, function: str) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, 1)
        self.activation = FUNCTIONS[function]()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.activation(self.conv(x))


class SqueezeExcitation(nn.Module):
    """Every channel times a gate that a small network computes from all channels' means."""

    def __init__(self, channels: int, squeezed: int, functions: tuple[str, str]) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.reduce = PointwiseFunction(channels, squeezed, functions[0])
        self.expand = PointwiseFunction(squeezed, channels, functions[1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.expand(self.reduce(self.pool(x)))


class DropSamples(nn.Module):
    """While training, a share of the samples set to zero and the others scaled up."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training or self.rate == 0:
            return x
        keep = 1 - self.rate
        mask = x.new_empty(x.shape[0], *(1 for _ in x.shape[1:])).bernoulli_(keep).div_(keep)
        return x * mask


class InvertedResidual(nn.Module):
    """A 1x1 convolution that widens, a depthwise one, squeeze-excitation, and a 1x1 that narrows."""

    def __init__(self, channels: int, block: InvertedBlock, drop: float = 0.0) -> None:
        super().__init__()
        inner, function = block.expanded, block.function
        self.adds = block.adds(channels)
        self.expand = ConvNorm(channels, inner, function=function) if inner != channels else nn.Identity()
        self.depthwise = ConvNorm(inner, inner, block.kernel, stride=block.stride, groups=inner, function=function)
        self.squeeze = (
            SqueezeExcitation(inner, block.squeezed, block.squeeze_functions) if block.squeezed else nn.Identity()
        )
        self.project = ConvNorm(inner, block.filters)
        self.drop = DropSamples(drop)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.project(self.squeeze(self.depthwise(self.expand(x))))
        return self.drop(y) + x if self.adds else y
