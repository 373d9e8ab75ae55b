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
from foretell.model.importers.torch_failure import failure
from foretell.runtime.tasks import Batch, Loss, Task

GIVES = "pairs of inputs and target, tensors with the batch as their first dim"


def task(text: str) -> Task:
    function: Any = torch_factory.find(text)[0]
    if not callable(function):
        raise BadInput(f"{text} is no function", where="--task", fix=f"a function that gives {GIVES}")
    return OwnTask(text, cast("Callable[..., Iterable[Any]]", function))


class OwnTask(NamedTuple):
    text: str
    function: Callable[..., Iterable[Any]]

    def unfit(self, like: Batch, classes: int) -> str:
        return ""

    def samples(self, like: Batch) -> int:
        return 0

    def batches(self, like: Batch, seed: int) -> Iterator[Batch]:
        while True:
            some = False
            for one in self._called(like, seed, "train"):
                some = True
                yield one
            if not some:
                raise BadInput("it gives no batch to train on", where=self.text, fix=GIVES)

    def held_out(self, like: Batch) -> Iterator[Batch]:
        if "split" in inspect.signature(self.function).parameters:
            yield from self._called(like, 0, "test")

    def _called(self, like: Batch, seed: int, split: str) -> Iterator[Batch]:
        known, batch = inspect.signature(self.function).parameters, len(like.target)
        given = {name: value for name, value in (("batch", batch), ("seed", seed), ("split", split)) if name in known}
        row = self._row(given)
        while (one := self._next(row)) is not END:
            found = self._read(one, batch if split == "train" else 0)
            self._fits(found, like)
            yield found

    def _row(self, given: dict[str, Any]) -> Iterator[Any]:
        try:
            found: Any = self.function(**given)
        except Exception as problem:
            raise failure(problem, self.text) from None
        if not isinstance(found, Iterable):
            raise BadInput(f"it gives a {type(found).__name__}", where=self.text, fix=GIVES)
        return iter(found)

    def _next(self, row: Iterator[Any]) -> Any:
        """The next batch; what goes wrong in a person's program is told by its own line."""
        try:
            return next(row, END)
        except Exception as problem:
            raise failure(problem, self.text) from None

    def _read(self, one: Any, batch: int) -> Batch:
        if not isinstance(one, tuple | list) or len(one) != 2:
            raise BadInput(f"it gives a {type(one).__name__}", where=self.text, fix=GIVES)
        inputs, target = one
        inputs = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
        for tensor in (*inputs, target):
            if not isinstance(tensor, torch.Tensor) or (batch and len(tensor) != batch):
                what = f"{len(tensor)} samples" if isinstance(tensor, torch.Tensor) else f"a {type(tensor).__name__}"
                raise BadInput(f"it gives {what}, for a batch of {batch}", where=self.text, fix=GIVES)
        return Batch(inputs, target)

    def _fits(self, found: Batch, like: Batch) -> None:
        """The model was followed, and its plan made, with inputs of one kind."""
        given, read = (tuple(map(_kind, batch.inputs)) for batch in (found, like))
        if given != read:
            what = f"it gives {_named(given)}, and the model reads {_named(read)}"
            raise BadInput(what, where=self.text, fix="the inputs that the model's factory gives, with other values")


END = object()
"""Nothing comes any more."""

Kind = tuple[tuple[int, ...], bool]
"""The sizes of a sample, and whether its numbers are floating."""


def _kind(tensor: torch.Tensor) -> Kind:
    return tuple(tensor.shape[1:]), tensor.is_floating_point()


def _named(kinds: tuple[Kind, ...]) -> str:
    return " and ".join(
        f"{'x'.join(map(str, size)) or 'one'} {'floats' if real else 'integers'}" for size, real in kinds
    )


def loss(text: str) -> Loss:
    """A person's own loss: `file.py:function` of outputs and target."""
    function: Any = torch_factory.find(text)[0]
    if not callable(function):
        raise BadInput(f"{text} is no function", where="--loss", fix="a function of outputs and target")
    return Scored(text, function)


class Scored(NamedTuple):
    """A loss whose mistakes are told by its own lines."""

    text: str
    function: Callable[[Any, torch.Tensor], Any]

    def __call__(self, outputs: Any, target: torch.Tensor) -> torch.Tensor:
        try:
            found = self.function(outputs, target)
        except Exception as problem:
            raise failure(problem, self.text) from None
        if not isinstance(found, torch.Tensor) or found.numel() != 1:
            what = f"{tuple(found.shape)} numbers" if isinstance(found, torch.Tensor) else f"a {type(found).__name__}"
            raise BadInput(f"it gives {what}", where=self.text, fix="one number, the mean over samples")
        if torch.is_grad_enabled() and not found.requires_grad:
            what = "it gives a number that does not depend on the outputs"
            raise BadInput(what, where=self.text, fix="a tensor made of outputs by torch")
        return found
