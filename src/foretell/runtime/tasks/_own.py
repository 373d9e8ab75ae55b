# pyright: basic
"""A person's own data: `file.py:function`.

The function takes any of `batch`, `seed` and `split` ("train" or "test") and gives batches one after the other: a pair
of inputs (a tensor or a tuple of tensors) and target. Where it ends, training begins again with it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, cast

import torch

from foretell.errors import BadInput
from foretell.model.importers import torch_factory
from foretell.runtime.tasks import Batch, Loss, Task

GIVES = "pairs of inputs and target, tensors with the batch as their first dim"


def task(text: str) -> Task:
    function: Any = torch_factory.find(text)[0]
    if not callable(function):
        raise BadInput(f"{text} is no function", where="--task", fix=f"a function that gives {GIVES}")
    return Own(text, cast("Callable[..., Iterable[Any]]", function))


class Own(NamedTuple):
    text: str
    function: Callable[..., Iterable[Any]]

    def unfit(self, like: Batch, classes: int) -> str:
        return ""

    def samples(self, like: Batch) -> int:
        return 0

    def batches(self, like: Batch, seed: int) -> Iterator[Batch]:
        while True:
            some = False
            for one in self._called(len(like.target), seed, "train"):
                some = True
                yield one
            if not some:
                raise BadInput("it gives no batch to train on", where=self.text, fix=GIVES)

    def held_out(self, like: Batch) -> Iterator[Batch]:
        if "split" in inspect.signature(self.function).parameters:
            yield from self._called(len(like.target), 0, "test")

    def _called(self, batch: int, seed: int, split: str) -> Iterator[Batch]:
        known = inspect.signature(self.function).parameters
        given = {name: value for name, value in (("batch", batch), ("seed", seed), ("split", split)) if name in known}
        for one in self.function(**given):
            yield self._read(one, batch if split == "train" else 0)

    def _read(self, one: Any, batch: int) -> Batch:
        try:
            inputs, target = one
        except (TypeError, ValueError):
            raise BadInput(f"it gives a {type(one).__name__}", where=self.text, fix=GIVES) from None
        inputs = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
        for tensor in (*inputs, target):
            if not isinstance(tensor, torch.Tensor) or (batch and len(tensor) != batch):
                what = f"{len(tensor)} samples" if isinstance(tensor, torch.Tensor) else f"a {type(tensor).__name__}"
                raise BadInput(f"it gives {what}, for a batch of {batch}", where=self.text, fix=GIVES)
        return Batch(inputs, target)


def loss(text: str) -> Loss:
    """A person's own loss: `file.py:function` of outputs and target."""
    function: Any = torch_factory.find(text)[0]
    if not callable(function):
        raise BadInput(f"{text} is no function", where="--loss", fix="a function of outputs and target")
    return cast("Loss", function)
