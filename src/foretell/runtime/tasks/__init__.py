# pyright: basic
"""What models are trained on: one file a task, found without downloads.

A task's file has `task(given)`, where `given` is what stands after a colon in its name (`images:FOLDER`). Most are of
two kinds: images with a class each (`_images.py`), and sequences with the next token at every place (`_tokens.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import torch

from foretell.errors import BadInput
from foretell.registry import OpenSet

TASKS = OpenSet(__name__, "task")

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""From outputs and target to one number, a mean over samples."""


class Batch(NamedTuple):
    """Samples of one step: what goes in and what should come out. The first dim is that of samples."""

    inputs: tuple[torch.Tensor, ...]
    target: torch.Tensor

    def to(self, device: torch.device) -> Batch:
        """The same on a device. From pinned memory it comes while the host goes on."""
        inputs = tuple(tensor.to(device, non_blocking=True) for tensor in self.inputs)
        return Batch(inputs, self.target.to(device, non_blocking=True))


class Task(Protocol):
    """Data to train on, and data that is held out to see how well it was learnt."""

    def unfit(self, like: Batch, classes: int) -> str:
        """Why a model that reads such batches and tells so many classes apart cannot be trained on it, or nothing."""
        ...

    def samples(self, like: Batch) -> int:
        """How many there are to train on, each once: an epoch. 0 where nobody knows."""
        ...

    def batches(self, like: Batch, seed: int) -> Iterator[Batch]:
        """An endless row of batches in these shapes: the same for the same seed."""
        ...

    def held_out(self, like: Batch) -> Iterator[Batch]:
        """Batches that are never trained on, each once; none where a task has no such thing."""
        ...


def task(text: str) -> Task:
    """The task of a name, `name:what it is given`, or of a person's own `file.py:function`."""
    name, _, given = text.partition(":")
    if name.endswith(".py"):
        from foretell.runtime.tasks import _own

        return _own.task(text)
    found: Task = TASKS[name].task(given)
    return found


def nothing_given(name: str, given: str) -> None:
    """Refuse what a task has no use for."""
    if given:
        raise BadInput(f"{name} is given {given!r}, and takes nothing", where="--task", fix=name)
