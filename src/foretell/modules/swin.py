"""Swin as a PyTorch module. Images are [sample, height, width, hidden] between its layers."""

from __future__ import annotations

import torch
from torch import nn

from foretell.model.zoo.swin import Swin
from foretell.modules._encoder import FeedForward, MultiHeadAttention
from foretell.modules.task import Example, images


def windows_of(x: torch.Tensor, window: int) -> torch.Tensor:
    """[sample, height, width, feature] as [sample, window, place, feature]."""
    x = x.unflatten(2, (-1, window)).unflatten(1, (-1, window))
    return x.transpose(2, 3).flatten(3, 4).flatten(1, 2)


def image_of(x: torch.Tensor, window: int, side: int) -> torch.Tensor:
    """[sample, window, place, feature] back as [sample, height, width, feature]."""
    x = x.unflatten(2, (window, window)).unflatten(1, (side // window, side // window))
    return x.transpose(2, 3).flatten(3, 4).flatten(1, 2)


def relative_index(window: int) -> torch.Tensor:
    """For each pair of places of a window the row of the bias table: one for each relative place."""
    row, column = torch.arange(window).repeat_interleave(window), torch.arange(window).repeat(window)
    down = row.unsqueeze(1) - row + window - 1
    right = column.unsqueeze(1) - column + window - 1
    return down * (2 * window - 1) + right


def shift_mask(side: int, window: int, shift: int) -> torch.Tensor:
    """For each window the pairs of places that a roll brought together: [window, 1, place, place]."""
    edge = torch.zeros(side, dtype=torch.int64)
    edge[-window:] = 1
    edge[-shift:] = 2
    region = windows_of((3 * edge.unsqueeze(1) + edge)[None, :, :, None], window)[0, :, :, 0]
    apart = region.unsqueeze(1) != region.unsqueeze(2)
    return torch.zeros(apart.shape).masked_fill(apart, -100.0).unsqueeze(1)


class WindowAttention(MultiHeadAttention):
    """Attention inside the windows of an image that may be rolled by `shift` first."""

    def __init__(self, hidden: int, heads: int, window: int, side: int, shift: int, dropout: float) -> None:
        super().__init__(hidden, heads, kernel="math", dropout=dropout)
        self.window, self.side, self.shift = window, side, shift
        self.register_buffer("index", relative_index(window), persistent=False)
        self.register_buffer("mask", shift_mask(side, window, shift) if shift else None, persistent=False)
        self.position_bias = nn.Embedding((2 * window - 1) ** 2, heads)
        nn.init.normal_(self.position_bias.weight, std=0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bias = self.position_bias(self.index).permute(2, 0, 1).contiguous()
        if self.mask is not None:
            bias = bias + self.mask
            x = x.roll((-self.shift, -self.shift), (1, 2))
        x = super().forward(windows_of(x, self.window), bias=bias)
        x = image_of(x, self.window, self.side)
        return x if self.mask is None else x.roll((self.shift, self.shift), (1, 2))


class SwinBlock(nn.Module):
    """Window attention and feed-forward, each after a norm and around a shortcut."""

    def __init__(self, fields: Swin, stage: int, block: int) -> None:
        super().__init__()
        hidden, heads = fields.hidden << stage, fields.heads[stage]
        side, shift = fields.grid(stage), fields.shift(stage, block)
        self.attention_norm = nn.LayerNorm(hidden)
        self.attention = WindowAttention(hidden, heads, fields.window, side, shift, fields.dropout)
        self.feed_forward_norm = nn.LayerNorm(hidden)
        self.feed_forward = FeedForward(hidden, fields.expansion * hidden, dropout=fields.dropout)
        self.dropout = nn.Dropout(fields.dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))


class Merge(nn.Module):
    """Two by two neighbours become one token of twice the features."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * hidden)
        self.reduction = nn.Linear(4 * hidden, 2 * hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        neighbours = [x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        return self.reduction(self.norm(torch.cat(neighbours, dim=-1)))


class SwinModule(nn.Module):
    """Patches through four stages of blocks; the mean of the last image decides."""

    def __init__(self, fields: Swin) -> None:
        super().__init__()
        self.patches = nn.Conv2d(fields.channels, fields.hidden, fields.patch, stride=fields.patch)
        self.patch_norm = nn.LayerNorm(fields.hidden)
        self.dropout = nn.Dropout(fields.dropout)
        self.stages = nn.ModuleList(
            nn.Sequential(*(SwinBlock(fields, stage, block) for block in range(count)))
            for stage, count in enumerate(fields.layers)
        )
        self.merges = nn.ModuleList(Merge(fields.hidden << stage) for stage in range(len(fields.layers) - 1))
        self.norm = nn.LayerNorm(fields.hidden << len(self.merges))
        self.head = nn.Linear(fields.hidden << len(self.merges), fields.classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.dropout(self.patch_norm(self.patches(image).permute(0, 2, 3, 1)))
        for at, stage in enumerate(self.stages):
            if at:
                x = self.merges[at - 1](x)
            x = stage(x)
        return self.head(self.norm(x).mean((1, 2)))


def module(fields: Swin) -> nn.Module:
    return SwinModule(fields)


def example(fields: Swin, batch: int) -> Example:
    return images(batch, fields.image, fields.classes, fields.channels)
