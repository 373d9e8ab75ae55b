"""CLIP as a PyTorch module."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from foretell.model.zoo.clip import Clip
from foretell.modules._encoder import PreNormLayer
from foretell.modules._normalization import rms_norm
from foretell.modules._tower import VisionTower
from foretell.modules.task import Example


class ClipEye(VisionTower):
    """An image to its features, of length one but for a constant factor."""

    def __init__(self, fields: Clip) -> None:
        super().__init__(fields.tower)
        self.norm = nn.LayerNorm(fields.hidden)
        self.projection = nn.Linear(fields.hidden, fields.embedding, bias=False)

    def features(self, image: torch.Tensor) -> torch.Tensor:
        return rms_norm(self.projection(self.norm(self(image)[:, 0])))


class ClipReader(nn.Module):
    """A text to its features: those of its last token, whose place is told."""

    def __init__(self, fields: Clip) -> None:
        super().__init__()
        hidden = fields.text_hidden
        self.embedding = nn.Embedding(fields.vocab, hidden)
        self.position = nn.Parameter(torch.empty(fields.seq, hidden).normal_(std=0.01))
        self.layers = nn.ModuleList(PreNormLayer(hidden, fields.text_layer) for _ in range(fields.text_layers))
        self.norm = nn.LayerNorm(hidden)
        self.projection = nn.Linear(hidden, fields.embedding, bias=False)
        nn.init.normal_(self.embedding.weight, std=0.02)

    def forward(self, tokens: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens) + self.position
        places = torch.arange(len(ends), device=ends.device) * tokens.shape[1] + ends
        for layer in self.layers:
            x = layer(x)
        return rms_norm(self.projection(self.norm(x).flatten(0, 1).index_select(0, places)))


class ClipModule(nn.Module):
    """Images, tokens and the places where texts end, to how alike each text and each image are."""

    def __init__(self, fields: Clip) -> None:
        super().__init__()
        self.vision = ClipEye(fields)
        self.text = ClipReader(fields)
        self.scale = nn.Parameter(torch.tensor(math.log(1 / 0.07) - math.log(fields.embedding)))

    def forward(self, image: torch.Tensor, tokens: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        return (self.text(tokens, ends) @ self.vision.features(image).t()) * self.scale.exp()


def module(fields: Clip) -> nn.Module:
    return ClipModule(fields)


def pair_loss(outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of each text over the images, and of each image over the texts, in fp32; all those of this rank."""
    wide, own = outputs.float(), torch.arange(len(target), device=target.device)
    return (F.cross_entropy(wide, own) + F.cross_entropy(wide.t(), own)) / 2


def example(fields: Clip, batch: int) -> Example:
    """Images with a text each; the text of an image is the one with its number."""
    text = torch.randint(fields.vocab, (batch, fields.seq))
    numbers = torch.arange(batch)
    image = torch.randn(batch, 3, fields.image, fields.image)
    return Example((image, text, torch.full((batch,), fields.seq - 1)), numbers, pair_loss)
