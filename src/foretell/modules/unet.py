"""U-Net in two and three dims as a PyTorch module."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

from foretell.model.zoo.unet import Unet
from foretell.modules.task import Example, class_loss

CONVOLUTION = {2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
POOL = {2: nn.MaxPool2d, 3: nn.MaxPool3d}
BATCH_NORM = {2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
INSTANCE_NORM = {2: nn.InstanceNorm2d, 3: nn.InstanceNorm3d}


class ConvNormRelu(nn.Module):
    """A 3x3 (or 3x3x3) convolution, the norm if there is one, and ReLU."""

    def __init__(self, fields: Unet, channels: int, filters: int, stride: int = 1) -> None:
        super().__init__()
        bias = fields.norm == "none"
        self.conv = CONVOLUTION[fields.dims](channels, filters, 3, stride, padding=1, bias=bias)
        self.norm = _norm(fields, filters)
        # instance norm gives a view; changing a view in place costs copies
        self.relu = nn.ReLU(inplace=fields.norm != "instance")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.relu(self.norm(self.conv(x)))


class UnetLevel(nn.Module):
    """Two convolutions of the same size."""

    def __init__(self, fields: Unet, channels: int, filters: int, stride: int = 1) -> None:
        super().__init__()
        self.first = ConvNormRelu(fields, channels, filters, stride)
        self.second = ConvNormRelu(fields, filters, filters)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))


class Interpolate(nn.Module):
    """Interpolation to twice the size, and a convolution."""

    def __init__(self, fields: Unet, channels: int, filters: int) -> None:
        super().__init__()
        linear = {2: "bilinear", 3: "trilinear"}[fields.dims]
        self.upsample = nn.Upsample(scale_factor=2, mode="nearest" if fields.up == "nearest" else linear)
        self.conv = CONVOLUTION[fields.dims](channels, filters, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(self.upsample(x))


class UnetModule(nn.Module):
    """A path down, a path up, and skips that cross between their levels."""

    def __init__(self, fields: Unet) -> None:
        super().__init__()
        filters = fields.filters()
        coarser = list(pairwise(filters))
        strided = fields.down == "strided"
        self.pool = nn.Identity() if strided else POOL[fields.dims](2)
        self.encoder = nn.ModuleList([UnetLevel(fields, fields.channels, filters[0])])
        self.encoder.extend(UnetLevel(fields, fine, coarse, 2 if strided else 1) for fine, coarse in coarser)
        self.up = nn.ModuleList(_finer(fields, coarse, fine) for fine, coarse in coarser)
        self.decoder = nn.ModuleList(UnetLevel(fields, 2 * fine, fine) for fine, _ in coarser)
        self.head = CONVOLUTION[fields.dims](filters[0], fields.classes, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        skips = [self.encoder[0](image)]
        for level in self.encoder[1:]:
            skips.append(level(self.pool(skips[-1])))
        x = skips.pop()
        for up, level, skip in zip(self.up[::-1], self.decoder[::-1], skips[::-1], strict=True):
            x = level(torch.cat([skip, up(x)], dim=1))
        return self.head(x)


def _norm(fields: Unet, filters: int) -> nn.Module:
    if fields.norm == "batch":
        return BATCH_NORM[fields.dims](filters)
    if fields.norm == "group":
        return nn.GroupNorm(fields.groups, filters)
    if fields.norm == "instance":
        return INSTANCE_NORM[fields.dims](filters, affine=True)
    return nn.Identity()


def _finer(fields: Unet, channels: int, filters: int) -> nn.Module:
    if fields.up == "transposed":
        return TRANSPOSED[fields.dims](channels, filters, 2, stride=2)
    return Interpolate(fields, channels, filters)


def module(fields: Unet) -> nn.Module:
    return UnetModule(fields)


def example(fields: Unet, batch: int) -> Example:
    """Images (or volumes) and the class of every position."""
    space = (fields.image,) * fields.dims
    target = torch.randint(fields.classes, (batch, *space))
    return Example((torch.randn(batch, fields.channels, *space),), target, class_loss)
