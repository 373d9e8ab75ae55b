"""A small convolutional network with strides, overlapping pools, odd sizes, a shortcut and a dense layer."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """A strided convolution and the 1x1 convolution around it."""

    def __init__(self, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, 3, stride, padding=1)
        self.around = nn.Conv2d(channels, filters, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.conv(x)) + self.around(x)


class SmallCnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Block(3, 6, 2), Block(6, 6, 1), Block(6, 8, 2), Block(8, 8, 1))
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.fc = nn.Linear(8, 5)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.fc(self.pool(self.blocks(image)).mean((2, 3)))


def _first_class(outputs: torch.Tensor) -> torch.Tensor:
    return F.log_softmax(outputs, 1)[:, 0].neg().mean()


def single(batch: int = 8) -> tuple[nn.Module, torch.Tensor, object]:
    """Images of 21 x 21, and the loss of always telling the first class."""
    return SmallCnn(), torch.randn(batch, 3, 21, 21), _first_class


def double(batch: int = 8) -> tuple[nn.Module, torch.Tensor, object]:
    """The same in double precision, for laws that compare values."""
    return SmallCnn().double(), torch.randn(batch, 3, 21, 21, dtype=torch.float64), _first_class
