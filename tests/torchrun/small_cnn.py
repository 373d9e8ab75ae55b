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


class NormedBlock(nn.Module):
    """A strided convolution and batch norm."""

    def __init__(self, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, 3, stride, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(filters)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.norm(self.conv(x)))


class SmallCnn(nn.Module):
    """Blocks, a pool, and a dense layer over the mean."""

    def __init__(self, block: type[nn.Module] = Block) -> None:
        super().__init__()
        self.blocks = nn.Sequential(block(3, 6, 2), block(6, 6, 1), block(6, 8, 2), block(8, 8, 1))
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.fc = nn.Linear(8, 5)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.fc(self.pool(self.blocks(image)).mean((2, 3)))


class SmallBox(nn.Module):
    """Volumes: convolutions with strides and without, an overlapping pool, and a dense layer over the mean."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv3d(2, 4, 3, stride=(2, 1, 2), padding=1)
        self.pool = nn.MaxPool3d(3, stride=2, padding=1)
        self.second = nn.Conv3d(4, 6, (3, 2, 3), padding=(1, 0, 1))
        self.fc = nn.Linear(6, 5)

    def forward(self, box: torch.Tensor) -> torch.Tensor:
        return self.fc(F.relu(self.second(self.pool(F.relu(self.first(box))))).mean((2, 3, 4)))


def _first_class(outputs: torch.Tensor) -> torch.Tensor:
    return F.log_softmax(outputs, 1)[:, 0].neg().mean()


def single(batch: int = 8) -> tuple[nn.Module, torch.Tensor, object]:
    """Images of 21 x 21, and the loss of always telling the first class."""
    return SmallCnn(), torch.randn(batch, 3, 21, 21), _first_class


def double(batch: int = 8) -> tuple[nn.Module, torch.Tensor, object]:
    """The same in double precision, for laws that compare values."""
    return SmallCnn().double(), torch.randn(batch, 3, 21, 21, dtype=torch.float64), _first_class


def normed_single(batch: int = 8) -> tuple[nn.Module, torch.Tensor, object]:
    """With batch norm."""
    return SmallCnn(NormedBlock), torch.randn(batch, 3, 21, 21), _first_class


def normed_double(batch: int = 8) -> tuple[nn.Module, torch.Tensor, object]:
    return SmallCnn(NormedBlock).double(), torch.randn(batch, 3, 21, 21, dtype=torch.float64), _first_class


def box_single(batch: int = 8) -> tuple[nn.Module, torch.Tensor, object]:
    """Boxes of 13 x 9 x 11."""
    return SmallBox(), torch.randn(batch, 2, 13, 9, 11), _first_class


def box_double(batch: int = 8) -> tuple[nn.Module, torch.Tensor, object]:
    return SmallBox().double(), torch.randn(batch, 2, 13, 9, 11, dtype=torch.float64), _first_class
