"""EfficientDet as a PyTorch module."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from foretell.model.zoo.efficientdet import LEVELS, Efficientdet
from foretell.modules._convolutional import ConvNorm, InvertedResidual
from foretell.modules.task import Example, token_loss


class SeparableConvolution(nn.Module):
    """A depthwise convolution and one of single places."""

    def __init__(self, width: int, filters: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False)
        self.pointwise = nn.Conv2d(width, filters, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pointwise(self.depthwise(x))


def halved(x: torch.Tensor) -> torch.Tensor:
    return F.max_pool2d(x, 3, 2, 1)


class MixedFeatures(nn.Module):
    """Features of one level from several, each times a number that is learnt."""

    def __init__(self, width: int, parts: int, channels: int) -> None:
        super().__init__()
        self.shares = nn.Parameter(torch.full((parts,), 1 / parts))
        self.narrowed = Narrowed(channels, width) if channels != width else nn.Identity()
        self.activation = nn.SiLU()
        self.conv = SeparableConvolution(width, width)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, own: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        parts = (self.narrowed(own), *others)
        x = parts[0] * self.shares[0]
        for at, part in enumerate(parts[1:], start=1):
            x = x + part * self.shares[at]
        return self.norm(self.conv(self.activation(x)))


class Narrowed(nn.Module):
    """A convolution of single places to fewer channels, with a bias and a norm."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, width, 1)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(x))


class FeatureMixture(nn.Module):
    """Features of all levels, mixed down from the coarsest, then up again."""

    def __init__(self, width: int, channels: dict[int, int]) -> None:
        super().__init__()
        self.down = nn.ModuleDict({str(one): MixedFeatures(width, 2, channels[one]) for one in (6, 5, 4, 3)})
        self.up = nn.ModuleDict(
            {str(one): MixedFeatures(width, 2 if one == 7 else 3, channels[one]) for one in (4, 5, 6, 7)}
        )

    def forward(self, given: list[torch.Tensor]) -> list[torch.Tensor]:
        own = dict(zip(LEVELS, given, strict=True))
        down = {7: own[7]}
        for level in (6, 5, 4, 3):
            down[level] = self.down[str(level)](own[level], F.interpolate(down[level + 1], scale_factor=2.0))
        found = [down[3]]
        for level in (4, 5, 6, 7):
            between = (down[level],) if level < 7 else ()
            found.append(self.up[str(level)](own[level], *between, halved(found[-1])))
        return found


class DetectionHead(nn.Module):
    """Values for every anchor of every place; all levels share convolutions, and have norms of their own."""

    def __init__(self, fields: Efficientdet, values: int) -> None:
        super().__init__()
        self.values = values
        self.layers = nn.ModuleList(SeparableConvolution(fields.width, fields.width) for _ in range(fields.depth))
        self.norms = nn.ModuleDict(
            {str(one): nn.ModuleList(nn.BatchNorm2d(fields.width) for _ in range(fields.depth)) for one in LEVELS}
        )
        self.last = SeparableConvolution(fields.width, fields.anchors * values)

    def forward(self, features: list[torch.Tensor]) -> torch.Tensor:
        found: list[torch.Tensor] = []
        for level, x in zip(LEVELS, features, strict=True):
            for layer, norm in zip(self.layers, self.norms[str(level)], strict=True):
                x = F.silu(norm(layer(x)))
            found.append(self.last(x).permute(0, 2, 3, 1).reshape(x.shape[0], -1, self.values))
        return torch.cat(found, 1)


class EfficientdetModule(nn.Module):
    """Classes and boxes of every anchor."""

    def __init__(self, fields: Efficientdet) -> None:
        super().__init__()
        backbone, self.tapped = fields.backbone, fields.tapped()
        channels = backbone.stem()
        self.stem = ConvNorm(3, channels, 3, stride=2, function="silu")
        self.blocks = nn.ModuleList()
        widths: list[int] = []
        for block in backbone.blocks():
            self.blocks.append(InvertedResidual(channels, block))
            channels = block.filters
            widths.append(channels)
        self.narrowed = Narrowed(channels, fields.width) if channels != fields.width else nn.Identity()
        first = {level: widths[at] for level, at in self.tapped.items()} | {6: fields.width, 7: fields.width}
        later = dict.fromkeys(LEVELS, fields.width)
        self.mixtures = nn.Sequential(
            *(FeatureMixture(fields.width, later if at else first) for at in range(fields.mixtures))
        )
        self.class_head, self.box_head = DetectionHead(fields, fields.classes), DetectionHead(fields, 4)

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, features = self.stem(image), list[torch.Tensor]()
        for at, block in enumerate(self.blocks):
            x = block(x)
            if at in self.tapped.values():
                features.append(x)
        features.append(halved(self.narrowed(x)))
        features.append(halved(features[-1]))
        features = self.mixtures(features)
        return self.class_head(features), self.box_head(features)


def module(fields: Efficientdet) -> nn.Module:
    return EfficientdetModule(fields)


def detection_loss(outputs: tuple[torch.Tensor, torch.Tensor], target: torch.Tensor) -> torch.Tensor:
    """The last four columns of the target are boxes; the first is the class."""
    classes, boxes = outputs
    return token_loss(classes, target[..., 0].long()) + F.mse_loss(boxes, target[..., 1:])


def example(fields: Efficientdet, batch: int) -> Example:
    places = sum((fields.image // 2**level) ** 2 for level in LEVELS) * fields.anchors
    classes = torch.randint(fields.classes, (batch, places, 1))
    target = torch.cat([classes, torch.randn(batch, places, 4)], -1)
    return Example((torch.randn(batch, 3, fields.image, fields.image),), target, detection_loss)
