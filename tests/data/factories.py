"""Small PyTorch models as people write them: factories for the tracer to build."""

from __future__ import annotations

import itertools
import os
import time

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """A feed-forward layer; the loop around it adds the shortcut."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(self.norm(x))))


class Tokens(nn.Module):
    """An embedding, blocks with shortcuts written in the loop, and tied logits."""

    def __init__(self, hidden: int = 32, layers: int = 4, vocab: int = 100) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.layers = nn.ModuleList(Block(hidden) for _ in range(layers))
        self.head = nn.Linear(hidden, vocab, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


def language_model(batch: int = 2, seq: int = 16) -> object:
    """Takes the batch and the sequence that are asked for."""
    tokens = torch.randint(100, (batch, seq))
    return Tokens(), (tokens,), lambda y: F.cross_entropy(y.flatten(0, 1), tokens.flatten())


def perceptron() -> object:
    """Has a batch of its own, and no loss."""
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), torch.randn(3, 8)


def half() -> object:
    """Casts a finished module, as most scripts do."""
    return nn.Linear(8, 4).to(torch.bfloat16), {"input": torch.randn(3, 8, dtype=torch.bfloat16)}


class WithExample(nn.Module):
    """Knows its own inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)

    def example_inputs(self, batch: int = 5) -> torch.Tensor:
        return torch.randn(batch, 8)


def counts_while_building() -> object:
    """Asks for values of tensors while it is built, which only real ones have."""
    widths = [int(width) for width in torch.linspace(8, 16, 3).tolist()]
    layers = [nn.Linear(a, b) for a, b in itertools.pairwise(widths)]
    return nn.Sequential(*layers), torch.randn(2, 8)


class Broken(nn.Module):
    """Fails while it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer(x)
        raise ValueError("this model is not finished")


def broken() -> object:
    return nn.Sequential(nn.Linear(8, 8), Broken()), torch.randn(2, 8)


class Aborts(nn.Module):
    """Takes the whole process with it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        os.abort()


def aborts() -> object:
    return Aborts(), torch.randn(2, 8)


def hangs() -> object:
    time.sleep(1000)
    return perceptron()


def nothing() -> None:
    """Forgets to return."""


def needs_arguments(width: int) -> object:
    return nn.Linear(width, width), torch.randn(2, width)


def only_a_module() -> object:
    """Does not say what the module is called with."""
    return nn.Linear(8, 4)


not_a_function = 3
