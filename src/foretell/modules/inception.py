"""Inception v3 as a PyTorch module."""

from __future__ import annotations

import torch
from torch import nn

from foretell.model.zoo import inception as architecture
from foretell.model.zoo.inception import Conv, Fork, Inception, PoolBranch, Sequence
from foretell.modules.task import Example, class_loss, images


class InceptionConv(nn.Module):
    """A convolution without bias, its batch norm and a ReLU."""

    def __init__(self, channels: int, part: Conv) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, part.filters, part.kernel, part.stride, part.padding, bias=False)
        self.norm = nn.BatchNorm2d(part.filters, eps=0.001)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.relu(self.norm(self.conv(x)))


class Branches(nn.Module):
    """Branches that all see the same input, and whose outputs are laid side by side."""

    def __init__(self, channels: int, part: Fork) -> None:
        super().__init__()
        self.branches = nn.ModuleList(sequence(channels, branch) for branch in part.branches)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([branch(x) for branch in self.branches], dim=1)


class Head(nn.Module):
    """Classes from the mean over all positions, after convolutions of its own if it has any."""

    def __init__(self, channels: int, classes: int, features: nn.Module | None = None, dropout: float = 0.0) -> None:
        super().__init__()
        self.features = features
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.fc = nn.Linear(channels, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.features is not None:
            x = self.features(x)
        return self.fc(self.dropout(self.avgpool(x)).flatten(1))


class InceptionModule(nn.Module):
    """In training with an auxiliary head it gives both heads' logits, otherwise the main one's."""

    def __init__(self, fields: Inception) -> None:
        super().__init__()
        self.stem = sequence(3, architecture.STEM)
        self.blocks = nn.ModuleList()
        self.auxiliary: Head | None = None
        channels = channels_after(3, architecture.STEM)
        for at, block in enumerate(architecture.BLOCKS):
            self.blocks.append(_part(channels, block))
            channels = channels_after(channels, (block,))
            if fields.aux and at == architecture.AUXILIARY_AFTER:
                features = sequence(channels, architecture.AUXILIARY)
                self.auxiliary = Head(channels_after(channels, architecture.AUXILIARY), fields.classes, features)
        self.head = Head(channels, fields.classes, dropout=fields.dropout)

    def forward(self, image: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        x = self.stem(image)
        auxiliary = None
        for at, block in enumerate(self.blocks):
            x = block(x)
            if self.auxiliary is not None and self.training and at == architecture.AUXILIARY_AFTER:
                auxiliary = self.auxiliary(x)
        x = self.head(x)
        return x if auxiliary is None else (x, auxiliary)


def channels_after(channels: int, parts: Sequence) -> int:
    """How many channels come out of a sequence."""
    for part in parts:
        if isinstance(part, Conv):
            channels = part.filters
        elif isinstance(part, Fork):
            channels = sum(channels_after(channels, branch) for branch in part.branches)
    return channels


def sequence(channels: int, parts: Sequence) -> nn.Sequential:
    return nn.Sequential(*(_part(channels_after(channels, parts[:at]), part) for at, part in enumerate(parts)))


def _part(channels: int, part: Conv | PoolBranch | Fork) -> nn.Module:
    if isinstance(part, Conv):
        return InceptionConv(channels, part)
    if isinstance(part, Fork):
        return Branches(channels, part)
    kind = nn.MaxPool2d if part.function == "max" else nn.AvgPool2d
    return kind(part.kernel, part.stride, part.padding, ceil_mode=part.ceil)


def _loss(outputs: torch.Tensor | tuple[torch.Tensor, torch.Tensor], target: torch.Tensor) -> torch.Tensor:
    """The main head's loss, and a share of the auxiliary one's where there is one."""
    if isinstance(outputs, torch.Tensor):
        return class_loss(outputs, target)
    main, auxiliary = outputs
    return class_loss(main, target) + architecture.AUXILIARY_SHARE * class_loss(auxiliary, target)


def module(fields: Inception) -> nn.Module:
    return InceptionModule(fields)


def example(fields: Inception, batch: int) -> Example:
    return images(batch, fields.image, fields.classes)._replace(loss=_loss)
