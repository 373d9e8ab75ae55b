"""ViT as a PyTorch module."""

from __future__ import annotations

import torch
from torch import nn

from foretell.model.zoo.vit import Vit
from foretell.modules._encoder import PreNormLayer
from foretell.modules.task import Example, images


class VitModule(nn.Module):
    """An image as a sequence of patches through a transformer encoder; the class token decides."""

    def __init__(self, fields: Vit) -> None:
        super().__init__()
        count = (fields.image // fields.patch) ** 2
        self.patches = nn.Conv2d(fields.channels, fields.hidden, fields.patch, stride=fields.patch)
        self.class_token = nn.Parameter(torch.zeros(1, fields.hidden))
        self.position = nn.Parameter(torch.empty(count + 1, fields.hidden).normal_(std=0.02))
        self.dropout = nn.Dropout(fields.dropout)
        self.layers = nn.ModuleList(PreNormLayer(fields.hidden, fields.layer) for _ in range(fields.layers))
        self.norm = nn.LayerNorm(fields.hidden, eps=1e-6)
        self.head = nn.Linear(fields.hidden, fields.classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        token = self.class_token.expand(x.shape[0], -1, -1)
        x = self.dropout(torch.cat([token, x], dim=1) + self.position)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)[:, 0])


def module(fields: Vit) -> nn.Module:
    return VitModule(fields)


def example(fields: Vit, batch: int) -> Example:
    return images(batch, fields.image, fields.classes, fields.channels)
