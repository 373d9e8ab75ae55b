"""Modules whose ranks end badly: only where ranks are, so that tracing them goes well."""

from __future__ import annotations

import os
import resource
import signal
import time

import torch
import torch.distributed as dist
from torch import nn


class Ending(nn.Module):
    """A dense layer; rank 1 ends in a forward pass, the first or a later one."""

    def __init__(self, how: str, after: int = 0) -> None:
        super().__init__()
        self.how, self.left = how, after
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if dist.is_initialized() and dist.get_rank() == 1:
            self.left -= 1
            if self.left < 0:
                return self.layer(x) * _end(self.how)
        return self.layer(x)


def _end(how: str) -> float:
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if how == "exhausted":
        resource.setrlimit(resource.RLIMIT_AS, (1 << 33, 1 << 33))
        torch.zeros(1 << 34)
    while how == "looping":
        time.sleep(0.1)
    if how == "diverging":
        return float("nan")
    raise ValueError("no bread in the house")


def killed() -> tuple[nn.Module, torch.Tensor]:
    return Ending("killed"), torch.randn(4, 4)


def failing() -> tuple[nn.Module, torch.Tensor]:
    return Ending("failing"), torch.randn(4, 4)


def stopped() -> tuple[nn.Module, torch.Tensor]:
    return Ending("stopped", after=6), torch.randn(4, 4)


def looping() -> tuple[nn.Module, torch.Tensor]:
    return Ending("looping"), torch.randn(4, 4)


def exhausted() -> tuple[nn.Module, torch.Tensor]:
    return Ending("exhausted"), torch.randn(4, 4)


def diverging() -> tuple[nn.Module, torch.Tensor]:
    return Ending("diverging", after=6), torch.randn(4, 4)
