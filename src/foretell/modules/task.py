"""What a module of the zoo is trained on: example inputs, targets and the loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F


class Example(NamedTuple):
    """One batch: what goes in, what should come out, and how the difference is scored."""

    inputs: tuple[torch.Tensor, ...]
    target: torch.Tensor
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def class_loss(outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of outputs[sample, class, ...] in fp32, as mixed-precision training has it."""
    return F.cross_entropy(outputs.float(), target)


def token_loss(outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of outputs[..., class] over every token, in fp32."""
    return F.cross_entropy(outputs.float().flatten(0, -2), target.flatten())


def images(batch: int, size: int, classes: int, channels: int = 3) -> Example:
    """Square images and a class each."""
    image = torch.randn(batch, channels, size, size)
    return Example((image,), torch.randint(classes, (batch,)), class_loss)


def tokens(batch: int, sequence: int, vocab: int) -> Example:
    """Sequences of tokens and the next token at every place."""
    text = torch.randint(vocab, (batch, sequence))
    return Example((text,), torch.randint(vocab, (batch, sequence)), token_loss)
