# pyright: basic
"""What frameworks that wrap a module have in common: each rank has its own samples, names get a word before them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from foretell.runtime.clock import Clock
from foretell.runtime.subject import Subject, TorchOptimizer, cut
from foretell.runtime.tasks import Batch
from foretell.runtime.waiting import LastGradient

Backward = Callable[[torch.Tensor], None]


def own_samples(subject: Subject) -> None:
    """Each rank takes its share of a batch."""
    rank, world = dist.get_rank(), dist.get_world_size()
    subject.shares.append(lambda batch: cut(batch, rank, world))
    subject.averaged = True  # by the framework


def as_by_torchrun() -> None:
    """The variables that frameworks read to know that there are several ranks. They have met already."""
    rank, world = str(dist.get_rank()), str(dist.get_world_size())
    local = str(torch.cuda.current_device()) if torch.cuda.is_initialized() else rank  # begun() gave it one
    os.environ |= {"RANK": rank, "LOCAL_RANK": local, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}


def unwrapped(subject: Subject, *words: str) -> None:
    """Take away what a wrapper puts before the name of a weight."""

    def whole(name: str, share: torch.Tensor) -> tuple[str, torch.Tensor]:
        for word in words:
            name = name.removeprefix(word)
        return name, share

    subject.wholes.append(whole)


class LossDriver:
    """A driver that computes the loss by our own function and has the framework do the backward pass."""

    def __init__(self, subject: Subject, backward: Backward) -> None:
        (self.part,) = subject.parts
        self.loss, self.backward, self.summed = subject.loss, backward, subject.summed

    def run(self, batch: Batch, clock: Clock) -> list[torch.Tensor]:
        with clock.phase("forward"):
            loss = self.loss(self.part(*batch.inputs), batch.target)
        with clock.phase("backward"):
            self.backward(loss)
            for told in self.summed:
                told(clock)
        return [loss.detach()]


def in_buckets(subject: Subject) -> None:
    """Tell what a backward pass waits for after the last gradient: of wrappers that are torch's DDP inside."""
    if subject.device.type == "cpu":
        subject.summed += [LastGradient(part, "dp").passed for part in subject.parts]


def wrap(subject: Subject, part: nn.Module, optimizer: Any, backward: Backward, *words: str) -> None:
    """A module and an optimizer that the framework made, in the place of ours."""
    own_samples(subject)
    subject.parts = [part]
    unwrapped(subject, *words)
    subject.driver = lambda subject: LossDriver(subject, backward)
    subject.optimizer = lambda rule, own: optimizer


def optimizer_of(subject: Subject) -> torch.optim.Optimizer:
    """Torch's, as the pair says, over all weights."""
    rule: TorchOptimizer = subject.rule
    return rule.over(subject.weights())
