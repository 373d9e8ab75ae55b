"""The U-Net of latent diffusion as a PyTorch module."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from foretell.model.zoo._encoder import OUTPUT_ALONE
from foretell.model.zoo.latent_unet import GROUPS, LatentUnet
from foretell.modules._encoder import MultiHeadAttention
from foretell.modules.dit import noise_loss
from foretell.modules.task import Example


class NoiseBlock(nn.Module):
    """Two convolutions behind norms, the time step added between them, around a shortcut."""

    def __init__(self, channels: int, width: int, told: int) -> None:
        super().__init__()
        self.first_norm = nn.GroupNorm(GROUPS, channels)
        self.first = nn.Conv2d(channels, width, 3, padding=1)
        self.told = nn.Linear(told, width)
        self.second_norm = nn.GroupNorm(GROUPS, width)
        self.second = nn.Conv2d(width, width, 3, padding=1)
        self.shortcut = nn.Conv2d(channels, width, 1) if channels != width else nn.Identity()

    def forward(self, x: torch.Tensor, told: torch.Tensor) -> torch.Tensor:
        y = self.first(F.silu(self.first_norm(x))) + self.told(told)[:, :, None, None]
        return self.shortcut(x) + self.second(F.silu(self.second_norm(y)))


class CrossLayer(nn.Module):
    """Places look at each other, then at the text, and go through a gated feed-forward."""

    def __init__(self, width: int, heads: int, text: int, kernel: str) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = MultiHeadAttention(width, heads, bias=OUTPUT_ALONE, kernel=kernel)
        self.cross_attention_norm = nn.LayerNorm(width)
        self.cross_attention = MultiHeadAttention(width, heads, bias=OUTPUT_ALONE, kernel=kernel, memory=text)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.feed_forward = nn.ModuleDict({"up": nn.Linear(width, 8 * width), "down": nn.Linear(4 * width, width)})

    def forward(self, x: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        x = self.attention(self.attention_norm(x)) + x
        x = self.cross_attention(self.cross_attention_norm(x), text) + x
        value, gate = self.feed_forward["up"](self.feed_forward_norm(x)).chunk(2, dim=-1)
        return self.feed_forward["down"](value * F.gelu(gate)) + x


class Look(nn.Module):
    """Layers over the places of an image, around a shortcut."""

    def __init__(self, fields: LatentUnet, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.dense = fields.dense
        self.norm = nn.GroupNorm(GROUPS, width)
        self.enter = nn.Linear(width, width) if self.dense else nn.Conv2d(width, width, 1)
        self.layers = nn.ModuleList(CrossLayer(width, heads, fields.text, fields.attention) for _ in range(depth))
        self.leave = nn.Linear(width, width) if self.dense else nn.Conv2d(width, width, 1)

    def forward(self, x: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        y = self.enter(y.flatten(2).transpose(1, 2)) if self.dense else self.enter(y).flatten(2).transpose(1, 2)
        for layer in self.layers:
            y = layer(y, text)
        y = self.leave(y) if self.dense else y
        y = y.transpose(1, 2).unflatten(2, x.shape[2:])
        return (y if self.dense else self.leave(y)) + x


class UnetBlock(nn.Module):
    """A residual block, and a transformer where its level has one."""

    def __init__(self, fields: LatentUnet, channels: int, level: int) -> None:
        super().__init__()
        width, depth = fields.width[level], fields.depth[level]
        self.residual = NoiseBlock(channels, width, fields.told)
        self.look = Look(fields, width, depth, fields.heads[level]) if depth else None

    def forward(self, x: torch.Tensor, told: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        x = self.residual(x, told)
        return x if self.look is None else self.look(x, text)


class Middle(nn.Module):
    """Two residual blocks around a transformer."""

    def __init__(self, fields: LatentUnet) -> None:
        super().__init__()
        width = fields.width[-1]
        self.first = NoiseBlock(width, width, fields.told)
        self.look = Look(fields, width, fields.deepest, fields.heads[-1])
        self.second = NoiseBlock(width, width, fields.told)

    def forward(self, x: torch.Tensor, told: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        return self.second(self.look(self.first(x, told), text), told)


class LatentUnetModule(nn.Module):
    """A noisy latent image, waves of its time step, the features of a text (and sizes), to the noise."""

    def __init__(self, fields: LatentUnet) -> None:
        super().__init__()
        widths, self.blocks = fields.width, fields.blocks
        self.time = _twofold(widths[0], fields.told)
        self.added = _twofold(fields.added, fields.told) if fields.added else None
        self.enter = nn.Conv2d(fields.channels, widths[0], 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        for level, width in enumerate(widths):
            before = widths[max(level - 1, 0)]
            parts: list[nn.Module] = [
                UnetBlock(fields, width if block else before, level) for block in range(fields.blocks)
            ]
            if level < len(widths) - 1:
                parts.append(nn.Conv2d(width, width, 3, stride=2, padding=1))
            self.down.append(nn.ModuleList(parts))
        self.middle = Middle(fields)
        for level, width in enumerate(widths):
            parts = [UnetBlock(fields, sum(fields.entering(level, at)), level) for at in range(fields.blocks + 1)]
            if level:
                parts.append(nn.Conv2d(width, width, 3, padding=1))
            self.up.append(nn.ModuleList(parts))
        self.norm = nn.GroupNorm(GROUPS, widths[0])
        self.leave = nn.Conv2d(widths[0], fields.channels, 3, padding=1)

    def forward(
        self, image: torch.Tensor, waves: torch.Tensor, text: torch.Tensor, added: torch.Tensor | None = None
    ) -> torch.Tensor:
        told = self.time["down"](F.silu(self.time["up"](waves)))
        if self.added is not None:
            told = told + self.added["down"](F.silu(self.added["up"](added)))
        told = F.silu(told)
        x = self.enter(image)
        skips = [x]
        for level in self.down:
            for part in level:
                x = part(x, told, text) if isinstance(part, UnetBlock) else part(x)
                skips.append(x)
        x = self.middle(x, told, text)
        for level in self.up[::-1]:
            for part in level:
                if isinstance(part, UnetBlock):
                    x = part(torch.cat([x, skips.pop()], dim=1), told, text)
                else:
                    x = part(F.interpolate(x, scale_factor=2.0, mode="nearest"))
        return self.leave(F.silu(self.norm(x)))


def _twofold(features: int, told: int) -> nn.ModuleDict:
    return nn.ModuleDict({"up": nn.Linear(features, told), "down": nn.Linear(told, told)})


def module(fields: LatentUnet) -> nn.Module:
    return LatentUnetModule(fields)


def example(fields: LatentUnet, batch: int) -> Example:
    """Noisy latent images, waves of their time steps, features of texts, and the noise."""
    shape = (batch, fields.channels, fields.image, fields.image)
    inputs = (torch.randn(shape), torch.randn(batch, fields.width[0]), torch.randn(batch, fields.seq, fields.text))
    if fields.added:
        inputs = (*inputs, torch.randn(batch, fields.added))
    return Example(inputs, torch.randn(shape, dtype=torch.float32), noise_loss)
