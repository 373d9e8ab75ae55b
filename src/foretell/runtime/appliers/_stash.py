# pyright: basic
"""A pipeline that never runs empty (PipeDream): every micro-batch updates the weights, and ranks keep old versions.

A rank runs as many forwards ahead as ranks follow it, and then one forward, one backward, on and on: the end of a step
is no end. What a forward read is kept for its backward, so a gradient is that of weights which are as many updates old
as ranks follow; it is applied to the newest. The last steps' micro-batches are left unfinished when training ends.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import torch
from torch import nn
from torch.func import functional_call

from foretell.runtime.appliers._line import Stream, gradient, let_go, like, several
from foretell.runtime.clock import Clock
from foretell.runtime.subject import Subject, TorchOptimizer, Updater, cut
from foretell.runtime.tasks import Batch


class _InFlight(NamedTuple):
    """A micro-batch whose backward has not come yet: what it read, what it made, and the weights that it saw."""

    inputs: list[torch.Tensor]
    outputs: tuple[torch.Tensor, ...]
    weights: dict[str, torch.Tensor]


class Stashed:
    """The driver of one rank."""

    optimizer: Updater

    def __init__(self, subject: Subject) -> None:
        (self.part,) = subject.parts
        self.forwards, self.backwards, self.loss = Stream(subject), Stream(subject), subject.loss
        self.rank, self.ranks = subject.mesh.place("pp"), subject.mesh.ranks("pp")
        self.microbatches = subject.setting.plan.microbatches
        self.is_last = self.rank + 1 == self.ranks
        self.flying: deque[_InFlight] = deque()
        self.settles, subject.settles = subject.settles, []  # of every update, not of a step
        inner = subject.optimizer

        def made(rule: TorchOptimizer, own: list[nn.Parameter]) -> Updater:
            self.optimizer = inner(rule, own)
            return self.optimizer

        subject.optimizer = made

    def run(self, batch: Batch, clock: Clock) -> list[torch.Tensor]:
        losses: list[torch.Tensor] = []
        with clock.between_phases("bubble"):
            for at in range(self.microbatches):
                self._forward(cut(batch, at, self.microbatches), losses, clock)
                if len(self.flying) > self.ranks - 1 - self.rank:
                    self._backward(clock)
        return losses

    def _forward(self, batch: Batch, losses: list[torch.Tensor], clock: Clock) -> None:
        inputs = list(batch.inputs) if self.rank == 0 else self.forwards.crossing(self.rank - 1)
        with clock.phase("forward"):
            weights = {name: _version(one) for name, one in self.part.named_parameters()}
            made = functional_call(self.part, weights, tuple(inputs))
            if self.is_last:
                made = self.loss(made, batch.target)
                losses.append(made.detach())
        self.flying.append(_InFlight(inputs, several(made), weights))
        if not self.is_last:
            self.forwards.hand_on(several(made), self.rank + 1)

    def _backward(self, clock: Clock) -> None:
        """Of the oldest micro-batch; then its update."""
        oldest = self.flying.popleft()
        trained = [one for one in oldest.outputs if one.requires_grad]
        gradients = [None] if self.is_last else self.backwards.received([like(one) for one in trained], self.rank + 1)
        with clock.phase("backward"):
            torch.autograd.backward(trained, gradients)
        if self.rank > 0:
            self.backwards.send([gradient(one) for one in oldest.inputs if one.requires_grad], self.rank - 1)
        self._let_go()
        for name, weight in self.part.named_parameters():
            weight.grad = oldest.weights[name].grad
        if self.settles:
            with clock.phase("exchange"):
                for settle in self.settles:
                    settle()
        with clock.phase("optimizer"):
            self.optimizer.step()
            self.optimizer.zero_grad()

    def _let_go(self) -> None:
        """Of older messages than are in flight anywhere: the neighbour that read them has sent some since."""
        values = [len(known) for known in self.forwards.known.values()]
        let_go(4 * self.ranks * max(values, default=1))


def _version(weight: torch.Tensor) -> torch.Tensor:
    """A weight as it is now."""
    return weight.detach().clone().requires_grad_(weight.requires_grad)
