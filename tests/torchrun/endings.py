"""Modules whose ranks end badly: only where ranks are, so that tracing them goes well.

The name of a factory says how, on which rank and after how many forward passes: `exit_7__rank_2__after_3`.
"""

from __future__ import annotations

import os
import re
import resource
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from foretell.trust import trust


class Ending(NamedTuple):
    """How a rank is to end."""

    how: str
    rank: int = 1
    after: int = 0  # forward passes

    def __str__(self) -> str:
        return f"{self.how}__rank_{self.rank}__after_{self.after}"

    @property
    def model(self) -> str:
        """The factory that ends so, as a person would have typed it."""
        text = f"{__file__}:{self}"
        trust(text)
        return text

    def now(self) -> float:
        """End; a number where that is all there is to it."""
        word, _, number = self.how.partition("_")
        if word == "exit":
            os._exit(int(number))
        if word == "signal":
            os.kill(os.getpid(), int(number))
        if word == "leave":
            raise SystemExit(int(number))
        if word == "disk":
            sys.dont_write_bytecode = True  # what is imported next would be cut off for everybody
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
            return 1.0
        if word == "memory":
            resource.setrlimit(resource.RLIMIT_AS, (1 << 33, 1 << 33))
            torch.zeros(1 << 34)
        while word == "hang":
            time.sleep(0.1)
        if word == "diverge":
            return float("nan")
        raise ValueError("no bread in the house")


class EndingInBackward(torch.autograd.Function):
    """What it is given, and an end in the backward pass."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, ending: Ending) -> torch.Tensor:
        context.ending = ending
        return x.clone()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient * context.ending.now(), None


class EndingLayer(nn.Module):
    """What it is given; one rank ends in a forward pass, the backward pass after it, or the optimizer."""

    def __init__(self, ending: Ending) -> None:
        super().__init__()
        self.phase, self.ending, self.left = "forward", ending, ending.after
        for phase in ("backward", "optimizer"):
            if ending.how.startswith(f"{phase}_"):
                self.phase, self.ending = phase, ending._replace(how=ending.how.removeprefix(f"{phase}_"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not dist.is_initialized() or dist.get_rank() != self.ending.rank:
            return x
        self.left -= 1
        if self.left >= 0:
            return x
        if self.phase == "backward":
            return EndingInBackward.apply(x, self.ending)
        if self.phase == "optimizer":
            register_optimizer_step_pre_hook(lambda *_: self.ending.now() and None)
            return x
        return x * self.ending.now()


def _factory(ending: Ending) -> Callable[[], tuple[nn.Module, torch.Tensor]]:
    def made() -> tuple[nn.Module, torch.Tensor]:
        layers = [one for _ in range(2) for one in (nn.Linear(4, 4), EndingLayer(ending))]
        return nn.Sequential(*layers), torch.randn(4, 4)

    return made


def __getattr__(name: str) -> Callable[[], tuple[nn.Module, torch.Tensor]]:
    found = re.fullmatch(r"(\w+?)__rank_(\d+)__after_(\d+)", name)
    if found is None:
        raise AttributeError(name)
    return _factory(Ending(found[1], int(found[2]), int(found[3])))
