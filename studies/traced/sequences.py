"""Language networks of published runs that no package builds, in plain PyTorch, from their papers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class RelativeLayer(nn.Module):
    """A layer of Transformer-XL (Dai et al. 2019, arXiv 1901.02860): attention to what came before too, by distance."""

    def __init__(self, hidden: int, heads: int, ffn: int, dropped: float) -> None:
        super().__init__()
        self.heads, self.each = heads, hidden // heads
        self.qkv, self.distance = (nn.Linear(hidden, n * hidden, bias=False) for n in (3, 1))
        self.output = nn.Linear(hidden, hidden, bias=False)
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(2))
        self.up, self.down = nn.Linear(hidden, ffn), nn.Linear(ffn, hidden)
        self.dropped = dropped

    def forward(self, x: Tensor, before: Tensor, places: Tensor, biases: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        samples, length, hidden = x.shape
        qkv = self.qkv(torch.cat([before, x], 1)).view(samples, -1, 3, self.heads, self.each)
        keys, values = qkv[:, :, 1].transpose(1, 2), qkv[:, :, 2].transpose(1, 2)
        query = qkv[:, -length:, 0]
        content = (query + biases[0]).transpose(1, 2) @ keys.transpose(2, 3)
        away = self.distance(places).view(-1, self.heads, self.each).permute(1, 2, 0)
        rows = (query + biases[1]).permute(2, 0, 1, 3).reshape(self.heads, samples * length, self.each)
        apart = (rows @ away).view(self.heads, samples, length, -1).transpose(0, 1)
        scores = (content + self.shifted(apart)) * self.each**-0.5
        chance = F.dropout(F.softmax(scores.masked_fill(mask, -65504.0), -1), self.dropped)
        mixed = (chance @ values).transpose(1, 2).reshape(samples, length, hidden)
        x = self.norms[0](x + F.dropout(self.output(mixed), 0.1))
        return self.norms[1](x + F.dropout(self.down(F.dropout(F.relu(self.up(x)), 0.1)), 0.1))

    @staticmethod
    def shifted(x: Tensor) -> Tensor:
        """Distances where keys lie: each row by one place more than the row below it."""
        samples, heads, rows, columns = x.shape
        padded = torch.cat([x.new_zeros(samples, heads, rows, 1), x], -1).view(samples, heads, columns + 1, rows)
        return padded[:, :, 1:].reshape(samples, heads, rows, columns)


class TransformerXL(nn.Module):
    """On WikiText-103 as NVIDIA's DeepLearningExamples train it (wt103_base.yaml, wt103_large.yaml): 267,735 words. Of
    the adaptive softmax what scores the 19,997 usual words for each token; scores of rarer ones, for tokens that are
    rarer words, depend on the data and are left out. A narrower table is read once a sequence."""

    WORDS, USUAL, CLUSTERS = (19997, 20000, 160000, 67738), 19997, 3

    def __init__(self, layers: int, hidden: int, heads: int, ffn: int, shrink: int, dropped: float) -> None:
        super().__init__()
        words = self.WORDS if shrink > 1 else (sum(self.WORDS),)
        widths = [hidden // shrink**n for n in range(len(words))]
        self.tables = nn.ModuleList(nn.Embedding(w, width) for w, width in zip(words, widths, strict=True))
        self.widened = nn.ModuleList(nn.Linear(width, hidden, bias=False) for width in widths if shrink > 1)
        self.usual = nn.Parameter(torch.zeros(self.USUAL))
        self.clusters = nn.Linear(hidden, self.CLUSTERS)
        self.layers = nn.ModuleList(RelativeLayer(hidden, heads, ffn, dropped) for _ in range(layers))
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(heads, hidden // heads)) for _ in range(2))

    def forward(self, words: Tensor, before: Tensor) -> Tensor:
        x = self.tables[0](words)
        if len(self.widened):
            x = self.widened[0](x)
            for table, wide in zip(self.tables[1:], self.widened[1:], strict=True):
                x = x + wide(table(words[:, :1]))
        x = F.dropout(x, 0.1)
        keys = words.shape[1] + before.shape[2]
        places = torch.zeros(keys, x.shape[2])
        mask = torch.ones(words.shape[1], keys, dtype=torch.bool).triu(1 + before.shape[2])
        for at, layer in enumerate(self.layers):
            x = layer(x, before[:, at], places, (self.biases[0], self.biases[1]), mask)
        x = F.dropout(x, 0.1)
        if len(self.widened):
            x = F.linear(x, self.widened[0].weight.t())
        scores = F.linear(x, self.tables[0].weight[: self.USUAL], self.usual)
        return torch.cat([scores, self.clusters(x)], -1)


def _next_word(scores: Tensor) -> Tensor:
    flat = scores.flatten(0, 1)
    return F.cross_entropy(flat, torch.zeros(flat.shape[0], dtype=torch.int64))


def transformer_xl_base(batch: int) -> Any:
    module = TransformerXL(16, 512, 8, 2048, shrink=1, dropped=0.0)
    return module, (torch.zeros(batch, 192, dtype=torch.int64), torch.zeros(batch, 16, 192, 512)), _next_word


def transformer_xl_large(batch: int) -> Any:
    module = TransformerXL(18, 1024, 16, 4096, shrink=4, dropped=0.2)
    return module, (torch.zeros(batch, 384, dtype=torch.int64), torch.zeros(batch, 18, 384, 1024)), _next_word
