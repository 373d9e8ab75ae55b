# pyright: basic
"""A pipeline that never runs empty (PipeDream): every micro-batch updates the weights, and ranks keep old versions.

A rank runs as many forwards ahead as ranks follow it, and then one forward, one backward, on and on: the end of a step
is no end. What a forward read is kept for its backward, so a gradient is that of weights which are as many updates old
as ranks follow; it is applied to the newest. The last steps' micro-batches are left unfinished when training ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.func import functional_call

from foretell.runtime.clock import Clock
from foretell.runtime.subject import Optimizer, Rule, Subject, cut
from foretell.runtime.tasks import Batch

FORWARD, BACKWARD = 0, 1000
"""First tags of messages; one more for each value that crosses."""


SENDING: deque[tuple[Any, torch.Tensor]] = deque()
"""What is on its way. It outlives the driver: when a rank has done all of its work, others still read its last ones."""


class Like(NamedTuple):
    """The shape and type of a value that crosses from one stage to the next."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def empty(self, device: torch.device) -> torch.Tensor:
        return torch.empty(self.shape, dtype=self.dtype, device=device)


DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.bool)
LETTER = Like((64,), torch.int64)
"""Before the first values that cross goes what they are like."""


def _written(values: Sequence[torch.Tensor], device: torch.device) -> torch.Tensor:
    numbers = [len(values)]
    for value in values:
        numbers += [DTYPES.index(value.dtype), value.dim(), *value.shape]
    return torch.tensor([*numbers, *[0] * (LETTER.shape[0] - len(numbers))], dtype=LETTER.dtype, device=device)


def _read(letter: torch.Tensor) -> list[Like]:
    count, *numbers = letter.tolist()
    found: list[Like] = []
    for _ in range(count):
        kind, dims, *numbers = numbers
        found.append(Like(tuple(numbers[:dims]), DTYPES[kind]))
        numbers = numbers[dims:]
    return found


class _InFlight(NamedTuple):
    """A micro-batch whose backward has not come yet: what it read, what it made, and the weights that it saw."""

    inputs: list[torch.Tensor]
    outputs: tuple[torch.Tensor, ...]
    weights: dict[str, torch.Tensor]


class Stashed:
    """The driver of one rank."""

    optimizer: Optimizer

    def __init__(self, subject: Subject) -> None:
        (self.part,) = subject.parts
        self.group, self.device, self.loss = subject.mesh.group("pp"), subject.device, subject.loss
        self.rank, self.ranks = subject.mesh.place("pp"), subject.mesh.ranks("pp")
        self.microbatches = subject.setting.plan.microbatches
        self.is_last = self.rank + 1 == self.ranks
        self.into: list[Like] = []  # what comes from the rank before
        self.out: list[Like] = []  # what goes to the next one
        self.flying: deque[_InFlight] = deque()
        self.settles, subject.settles = subject.settles, []  # of every update, not of a step
        inner = subject.optimizer

        def made(rule: Rule, own: list[nn.Parameter]) -> Optimizer:
            self.optimizer = inner(rule, own)
            return self.optimizer

        subject.optimizer = made

    def run(self, batch: Batch, clock: Clock) -> list[torch.Tensor]:
        before, start = clock.spent, clock.read()
        losses: list[torch.Tensor] = []
        for at in range(self.microbatches):
            self._forward(cut(batch, at, self.microbatches), losses, clock)
            if len(self.flying) > self.ranks - 1 - self.rank:
                self._backward(clock)
        clock.add("bubble", clock.read() - start - (clock.spent - before))
        return losses

    def _forward(self, batch: Batch, losses: list[torch.Tensor], clock: Clock) -> None:
        inputs = list(batch.inputs) if self.rank == 0 else self._crossing()
        with clock.phase("forward"):
            for value in inputs:
                value.requires_grad_(self.rank > 0 and value.is_floating_point())
            weights = {name: _version(one) for name, one in self.part.named_parameters()}
            made = functional_call(self.part, weights, tuple(inputs))
            if self.is_last:
                made = self.loss(made, batch.target)
                losses.append(made.detach())
        self.flying.append(_InFlight(inputs, _several(made), weights))
        if not self.is_last:
            self._hand_on([one.detach() for one in _several(made)])

    def _crossing(self) -> list[torch.Tensor]:
        """What the rank before made of a micro-batch; the first time it says what that is like."""
        if not self.into:
            (letter,) = self._received([LETTER], self.rank - 1, FORWARD)
            self.into = _read(letter)
        return self._received(self.into, self.rank - 1, FORWARD)

    def _hand_on(self, values: list[torch.Tensor]) -> None:
        if not self.out:
            self.out = [Like(tuple(value.shape), value.dtype) for value in values]
            self._send([_written(values, self.device)], self.rank + 1, FORWARD)
        self._send(values, self.rank + 1, FORWARD)

    def _backward(self, clock: Clock) -> None:
        """Of the oldest micro-batch; then its update."""
        oldest = self.flying.popleft()
        trained = [one for one in oldest.outputs if one.requires_grad]
        likes = [Like(tuple(one.shape), one.dtype) for one in trained]
        gradients = [None] if self.is_last else self._received(likes, self.rank + 1, BACKWARD)
        with clock.phase("backward"):
            torch.autograd.backward(trained, gradients)
        if self.rank > 0:
            self._send([_gradient(one) for one in oldest.inputs if one.requires_grad], self.rank - 1, BACKWARD)
        for name, weight in self.part.named_parameters():
            weight.grad = oldest.weights[name].grad
        if self.settles:
            with clock.phase("exchange"):
                for settle in self.settles:
                    settle()
        with clock.phase("optimizer"):
            self.optimizer.step()
            self.optimizer.zero_grad()

    def _send(self, values: list[torch.Tensor], to: int, first: int) -> None:
        """Without waiting; a value is kept until it is gone. Of older ones than are in flight anywhere it is: the
        neighbour that reads them has sent something since that comes after them."""
        for tag, value in enumerate(values, first):
            whole = value.contiguous()
            SENDING.append((dist.isend(whole, group=self.group, group_dst=to, tag=tag), whole))
        while len(SENDING) > 4 * self.ranks * max(len(self.into), len(self.out)):
            SENDING.popleft()[0].wait()

    def _received(self, likes: list[Like], of: int, first: int) -> list[torch.Tensor]:
        found = [like.empty(self.device) for like in likes]
        works = [dist.irecv(one, group=self.group, group_src=of, tag=tag) for tag, one in enumerate(found, first)]
        for work in works:
            assert work is not None
            work.wait()
        return found


def _version(weight: torch.Tensor) -> torch.Tensor:
    """A weight as it is now."""
    return weight.detach().clone().requires_grad_(weight.requires_grad)


def _several(values: Any) -> tuple[Any, ...]:
    return values if isinstance(values, tuple) else (values,)


def _gradient(value: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(value) if value.grad is None else value.grad
