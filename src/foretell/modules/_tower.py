"""The transformer that CLIP looks at images with, as a PyTorch module."""

from __future__ import annotations

import torch
from torch import nn

from foretell.model.zoo._tower import Tower
from foretell.modules._encoder import PreNormLayer


class VisionTower(nn.Module):
    """Images to places, a token for all of the image first."""

    def __init__(self, tower: Tower) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, tower.hidden, tower.patch, stride=tower.patch, bias=False)
        self.class_token = nn.Parameter(torch.randn(1, tower.hidden) * 0.02)
        self.position = nn.Parameter(torch.empty(tower.patches + 1, tower.hidden).normal_(std=0.02))
        self.pre_norm = nn.LayerNorm(tower.hidden)
        self.layers = nn.ModuleList(PreNormLayer(tower.hidden, tower.each) for _ in range(tower.layers))

    def forward(self, image: torch.Tensor, layers: int = 0) -> torch.Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        token = self.class_token.expand(x.shape[0], -1, -1)
        x = self.pre_norm(torch.cat([token, x], dim=1) + self.position)
        for layer in self.layers[: layers or len(self.layers)]:
            x = layer(x)
        return x
