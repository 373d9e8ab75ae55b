"""GoogLeNet as a PyTorch module."""

from __future__ import annotations

import torch
from torch import nn

from foretell.model.zoo import googlenet as architecture
from foretell.model.zoo.googlenet import GoogLeNet
from foretell.modules.inception import channels_after, sequence
from foretell.modules.task import Example, images


class GoogLeNetModule(nn.Module):
    def __init__(self, fields: GoogLeNet) -> None:
        super().__init__()
        inside = channels_after(3, architecture.STEM)
        self.stem = sequence(3, architecture.STEM)
        self.blocks = sequence(inside, architecture.BLOCKS)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(fields.dropout) if fields.dropout else nn.Identity()
        self.fc = nn.Linear(channels_after(inside, architecture.BLOCKS), fields.classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.avgpool(self.blocks(self.stem(image)))
        return self.fc(self.dropout(x).flatten(1))


def module(fields: GoogLeNet) -> nn.Module:
    return GoogLeNetModule(fields)


def example(fields: GoogLeNet, batch: int) -> Example:
    return images(batch, fields.image, fields.classes)
