"""A PyTorch module of your own: `foretell analyze examples/my_model.py:build`."""

import torch
from torch import nn


class Block(nn.Module):
    """A convolution that mixes positions, one that mixes channels, and a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.space = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.BatchNorm2d(channels)
        self.mix = nn.Conv2d(channels, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + nn.functional.gelu(self.mix(self.norm(self.space(x))))


class Net(nn.Module):
    """Twelve equal blocks between a patch layer and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 256, 8, stride=8)
        self.blocks = nn.Sequential(*(Block(256) for _ in range(12)))
        self.head = nn.Linear(256, 1000)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.patch(image)).mean((2, 3)))


def build() -> tuple[nn.Module, torch.Tensor]:
    """The module and an example input; no weights are made, only their shapes."""
    return Net(), torch.randn(16, 3, 224, 224)
