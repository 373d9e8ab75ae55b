"""CosmoFlow as a PyTorch module."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

from foretell.model.zoo.cosmoflow import DENSE, Cosmoflow
from foretell.modules.task import Example

SLOPE = 0.3
"""Of the leaky ReLU below zero."""

REACH = 1.2
"""The outputs end there on both sides; targets lie within -1 and 1."""


class ConvPoolLayer(nn.Module):
    """A convolution that keeps the size, leaky ReLU, and pooling to half the size."""

    def __init__(self, channels: int, filters: int) -> None:
        super().__init__()
        self.conv = nn.Conv3d(channels, filters, 3, padding=1)
        self.relu = nn.LeakyReLU(SLOPE, inplace=True)
        self.pool = nn.MaxPool3d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pool(self.relu(self.conv(x)))


class DenseDropout(nn.Module):
    """A dense layer, leaky ReLU and dropout."""

    def __init__(self, features: int, width: int, dropout: float) -> None:
        super().__init__()
        self.linear = nn.Linear(features, width)
        self.relu = nn.LeakyReLU(SLOPE, inplace=True)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dropout(self.relu(self.linear(x)))


class CosmoflowModule(nn.Module):
    """Convolutions that halve the box, and three dense layers."""

    def __init__(self, fields: Cosmoflow) -> None:
        super().__init__()
        channels = [fields.channels, *fields.filters()]
        widths = [fields.features(), *DENSE]
        self.layers = nn.Sequential(*(ConvPoolLayer(inner, filters) for inner, filters in pairwise(channels)))
        self.dense = nn.Sequential(*(DenseDropout(inner, width, fields.dropout) for inner, width in pairwise(widths)))
        self.head = nn.Linear(widths[-1], fields.outputs)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.dense(self.layers(image).flatten(1))
        return REACH * torch.tanh(self.head(x))


def module(fields: Cosmoflow) -> nn.Module:
    return CosmoflowModule(fields)


def example(fields: Cosmoflow, batch: int) -> Example:
    """Boxes of voxels and the cosmological parameters of each, scaled to within -1 and 1."""
    box = torch.randn(batch, fields.channels, *(fields.image,) * 3)
    target = torch.rand(batch, fields.outputs, dtype=torch.float32) * 2 - 1
    return Example((box,), target, value_loss)


def value_loss(outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The mean squared error, in fp32 as mixed-precision training has it."""
    return F.mse_loss(outputs.float(), target)
