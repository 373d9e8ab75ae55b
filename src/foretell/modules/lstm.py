"""The recurrent language model as a PyTorch module."""

from __future__ import annotations

import torch
from torch import nn

from foretell.model.zoo.lstm import Lstm
from foretell.modules._recurrent import RecurrentLayer
from foretell.modules.task import Example, tokens


class LstmLayer(nn.Module):
    """A recurrent layer, and dropout on what it hands on (never between its own steps)."""

    def __init__(self, cell: str, inputs: int, units: int, dropout: float) -> None:
        super().__init__()
        self.recurrent = RecurrentLayer(cell, inputs, units)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dropout(self.recurrent(x))


class LstmModule(nn.Module):
    """Word embedding, recurrent layers, output layer."""

    def __init__(self, fields: Lstm) -> None:
        super().__init__()
        width = fields.embedding or fields.hidden
        self.embedding = nn.Embedding(fields.vocab, width)
        self.dropout = nn.Dropout(fields.dropout) if fields.dropout else nn.Identity()
        self.layers = nn.Sequential(
            *(
                LstmLayer(fields.cell, fields.hidden if layer else width, fields.hidden, fields.dropout)
                for layer in range(fields.layers)
            )
        )
        self.output = nn.Linear(fields.hidden, fields.vocab)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.output(self.layers(self.dropout(self.embedding(words))))


def module(fields: Lstm) -> nn.Module:
    return LstmModule(fields)


def example(fields: Lstm, batch: int) -> Example:
    return tokens(batch, fields.seq, fields.vocab)
