"""LeNet-5 as a PyTorch module."""

from __future__ import annotations

import torch
from torch import nn

from foretell.model.zoo.lenet import Lenet
from foretell.modules.task import Example, images


class LenetModule(nn.Module):
    """Two convolutions with subsampling, three dense layers."""

    def __init__(self, fields: Lenet) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 6, 5),
            nn.Tanh(),
            nn.AvgPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.Tanh(),
            nn.AvgPool2d(2),
        )
        side = ((fields.image - 4) // 2 - 4) // 2
        self.classifier = nn.Sequential(
            nn.Linear(16 * side * side, 120),
            nn.Tanh(),
            nn.Linear(120, 84),
            nn.Tanh(),
            nn.Linear(84, fields.classes),
        )

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(image).flatten(1))


def module(fields: Lenet) -> nn.Module:
    return LenetModule(fields)


def example(fields: Lenet, batch: int) -> Example:
    return images(batch, fields.image, fields.classes, channels=1)
