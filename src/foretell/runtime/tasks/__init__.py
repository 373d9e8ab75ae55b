# pyright: basic
"""What models are trained on: one file a task, found without downloads.

A task's file has `batches(like, seed)`, an endless row of batches in the shapes of the batch `like`, and
`unfit(like, classes)`, why a model that tells so many classes apart cannot be trained on it, or nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from foretell.registry import OpenSet

TASKS = OpenSet(__name__, "task")

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""From outputs and target to one number, a mean over samples."""


class Batch(NamedTuple):
    """Samples of one step: what goes in and what should come out. The first dim is that of samples."""

    inputs: tuple[torch.Tensor, ...]
    target: torch.Tensor

    def to(self, device: torch.device) -> Batch:
        return Batch(tuple(tensor.to(device) for tensor in self.inputs), self.target.to(device))
