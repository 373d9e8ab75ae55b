"""Modules whose ranks end badly: only where ranks are, so that tracing them goes well."""

from __future__ import annotations

import os
import signal

import torch
import torch.distributed as dist
from torch import nn


class Ending(nn.Module):
    """A dense layer; rank 1 ends in its first forward pass."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if dist.is_initialized() and dist.get_rank() == 1:
            _end(self.how)
        return self.layer(x)


def _end(how: str) -> None:
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    raise ValueError("no bread in the house")


def killed() -> tuple[nn.Module, torch.Tensor]:
    return Ending("killed"), torch.randn(4, 4)


def failing() -> tuple[nn.Module, torch.Tensor]:
    return Ending("failing"), torch.randn(4, 4)
