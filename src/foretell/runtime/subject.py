# pyright: basic
"""What is trained on one rank: appliers change it one after the other, and then its steps are run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from torch import nn

from foretell.model.layers import layers
from foretell.plan.setting import Setting
from foretell.runtime.clock import Clock
from foretell.runtime.mesh import TorchMesh
from foretell.runtime.tasks import Batch, Loss


class WholeWeight(Protocol):
    """Puts together again what an applier split: the name of a weight and its share to the whole weight."""

    def __call__(self, name: str, share: torch.Tensor) -> tuple[str, torch.Tensor]: ...


class Driver(Protocol):
    """Takes a rank's share of a batch through forward and backward passes."""

    def run(self, batch: Batch, clock: Clock) -> list[torch.Tensor]:
        """The losses of its micro-batches; none on a rank that does not see them."""
        ...


class Updater(Protocol):
    """Updates weights by their gradients."""

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Weights with their rates, as torch has them."""
        ...

    def step(self) -> Any: ...

    def zero_grad(self) -> Any: ...


class TorchOptimizer(NamedTuple):
    """How weights are updated: torch's class and its arguments."""

    kind: type[torch.optim.Optimizer]
    arguments: dict[str, Any]

    def over(self, weights: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
        """Over these weights. A stage may have none, and torch's optimizers want one: an empty one."""
        return self.kind(weights or [nn.Parameter(torch.empty(0))], **self.arguments)


@dataclass
class Subject:
    """A module under a plan, on one rank.

    parts      the modules that this rank has: the model, or a stage each
    sample     a micro-batch in its shapes, before any share is taken but that of samples
    shares     what takes this rank's share out of a batch, one function an axis
    weight     how its mean loss counts among those of ranks with other shares, whose mean is the loss
    count      micro-batches of this rank
    alike      axes beside those that share the batch along which all weights are averaged
    summands   weights whose gradients are summands along more axes than those that share the batch, and these
    divided    weights that are cut along axes that share the batch, and these: there is nothing to average along them
    quiet      the context in which a part's gradients are not exchanged: not the last micro-batch yet
    driver     made when all parts are ready
    summed     told when a part's last backward pass is over, in which its gradients were exchanged
    settles    what is done with gradients when all passes are through
    optimizer  from the rule and this rank's weights
    wholes     the last one first: how splits are undone
    """

    setting: Setting
    mesh: TorchMesh
    device: torch.device
    parts: list[nn.Module]
    sample: Batch
    loss: Loss
    rule: TorchOptimizer
    shares: list[Callable[[Batch], Batch]] = field(default_factory=list)
    weight: float = 1.0
    alike: list[str] = field(default_factory=list)
    summands: dict[nn.Parameter, tuple[str, ...]] = field(default_factory=dict)
    divided: dict[nn.Parameter, tuple[str, ...]] = field(default_factory=dict)
    averaged: bool = False  # whether somebody takes care of it
    rehearsed: bool = False  # whether the other ranks are not there
    fullest: float = 1.0  # rows that then come to this rank's experts, over the mean of ranks
    later: bool = False  # whether gradients are averaged when all passes are through, not beside them
    quiet: Callable[[nn.Module], AbstractContextManager[Any]] = field(default=lambda part: nullcontext())
    driver: Callable[[Subject], Driver] = field(default=lambda subject: Straight(subject))
    summed: list[Callable[[Clock], None]] = field(default_factory=list)
    settles: list[Callable[[], None]] = field(default_factory=list)
    optimizer: Callable[[TorchOptimizer, list[nn.Parameter]], Updater] = field(default=lambda rule, own: rule.over(own))
    wholes: list[WholeWeight] = field(default_factory=list)

    @functools.cached_property
    def count(self) -> int:
        return self.setting.plan.microbatches

    def layers(self, part: nn.Module) -> Iterator[tuple[str, nn.Module]]:
        """The layers of a part, by the names that the program has for them."""
        names = dict(part.named_modules())
        return ((name, names[name]) for name in layers(self.setting.graph) if name in names)

    def weights(self) -> list[nn.Parameter]:
        """All that are trained here; one that two parts have, once."""
        found = (weight for part in self.parts for weight in part.parameters() if weight.requires_grad)
        return list(dict.fromkeys(found))

    def whole_weights(self) -> dict[str, torch.Tensor]:
        """The weights that this rank has some of, whole and under the model's own names. All ranks take part."""
        found: dict[str, torch.Tensor] = {}
        for part in self.parts:
            for name, share in part.named_parameters():
                whole = share.detach()
                for undo in reversed(self.wholes):
                    name, whole = undo(name, whole)
                found[name] = whole.cpu()
        return found


def cut(batch: Batch, at: int, ways: int) -> Batch:
    """One of so many equal shares of a batch's samples."""

    def rows(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.tensor_split(ways)[at]

    return Batch(tuple(map(rows, batch.inputs)), rows(batch.target))


class Straight:
    """One micro-batch after the other: forward, backward. Gradients add up, and are exchanged with the last."""

    def __init__(self, subject: Subject) -> None:
        (self.part,) = subject.parts
        self.loss, self.quiet, self.summed = subject.loss, subject.quiet, subject.summed
        self.count, self.weight = subject.count, subject.weight

    def run(self, batch: Batch, clock: Clock) -> list[torch.Tensor]:
        losses: list[torch.Tensor] = []
        for at in range(self.count):
            mine = cut(batch, at, self.count)
            with self.quiet(self.part) if at + 1 < self.count else nullcontext():
                with clock.phase("forward"):
                    loss = self.loss(self.part(*mine.inputs), mine.target)
                if loss.requires_grad:  # else it is evaluated, not trained
                    self._backward(loss, clock, last=at + 1 == self.count)
            losses.append(loss.detach())
        return losses

    def _backward(self, loss: torch.Tensor, clock: Clock, last: bool) -> None:
        with clock.phase("backward"):
            (loss * (self.weight / self.count)).backward()
            for told in self.summed if last else ():
                told(clock)
