# pyright: basic
"""A network of the zoo on real data: gradients of many workers in one call, over weights stacked."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch.func import functional_call, grad, vmap

from foretell import modules
from foretell.errors import BadInput
from foretell.learning.vector import Rows, Shapes, Vector
from foretell.model import zoo
from foretell.runtime.tasks import Batch, task
from foretell.virtual.problem import Judged

AT_ONCE = 50
"""Samples that a task is asked for at a time."""

SAMPLES = 1400
"""That are learnt from: most of the digits that are not held out. Tasks without an end are cut here."""


def _one_thread(made: Callable[..., Any]) -> Callable[..., Any]:
    """In one thread: sums have one order, and many small products are not worth a meeting of threads."""

    @functools.wraps(made)
    def called(*given: Any) -> Any:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return made(*given)
        finally:
            torch.set_num_threads(before)

    return called


class NetworkProblem:
    """A model of the zoo that tells classes apart, on a task of `foretell run`."""

    metric: str = "accuracy"

    def __init__(self, spec: str = "lenet:image=16", on: str = "digits", samples: int = SAMPLES, seed: int = 0) -> None:
        self.name = f"{spec} on {on}"
        self._spec = spec
        torch.manual_seed(seed)
        self._module = modules.build(spec)
        if any(True for _ in self._module.buffers()):
            fix = "a model without running statistics: lenet, mlp"
            raise BadInput(f"{spec} keeps statistics of batches, which workers would not share", where="MODEL", fix=fix)
        self._inputs, self._targets = _samples(spec, on, samples, seed)
        self.samples = len(self._inputs)
        self.labels: Rows = self._targets.numpy()
        named = list(self._module.named_parameters())
        self.shapes: Shapes = tuple(tuple(weight.shape) for _, weight in named)
        self._names = [name for name, _ in named]
        self._one = grad(self._loss)
        self._many = vmap(self._one)

    def start(self, seed: int) -> Vector:
        torch.manual_seed(seed)
        fresh = modules.build(self._spec)
        return np.concatenate([weight.detach().numpy().ravel() for weight in fresh.parameters()])

    def _weights(self, stacked: torch.Tensor) -> dict[str, torch.Tensor]:
        """Named tensors out of flat ones; dims before the last stay."""
        parts = stacked.split([math.prod(shape) for shape in self.shapes], dim=-1)
        return {
            name: part.unflatten(-1, shape) for name, part, shape in zip(self._names, parts, self.shapes, strict=True)
        }

    def _loss(self, weights: dict[str, torch.Tensor], inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(functional_call(self._module, weights, (inputs,)), targets)

    @_one_thread
    def gradients(self, weights: Sequence[Vector], rows: Sequence[Rows]) -> Sequence[Vector]:
        if len(weights) == 1 or len({len(chosen) for chosen in rows}) > 1:
            return [self._alone(one, chosen) for one, chosen in zip(weights, rows, strict=True)]
        chosen = torch.from_numpy(np.stack(rows))
        stacked = torch.from_numpy(np.stack(weights))
        made = self._many(self._weights(stacked), self._inputs[chosen], self._targets[chosen])
        return list(self._flat(made, len(weights)))

    def _alone(self, weights: Vector, rows: Rows) -> Vector:
        chosen = torch.from_numpy(rows)
        made = self._one(self._weights(torch.from_numpy(weights)), self._inputs[chosen], self._targets[chosen])
        return self._flat(made, 1)[0]

    def _flat(self, made: dict[str, torch.Tensor], count: int) -> Vector:
        return torch.cat([made[name].reshape(count, -1) for name in self._names], dim=1).numpy()

    @_one_thread
    @torch.no_grad()
    def _outputs(self, models: Sequence[Vector]) -> torch.Tensor:
        """Mean probabilities of the models."""
        found: Any = 0.0
        for model in models:
            weights = self._weights(torch.from_numpy(model))
            found = found + functional_call(self._module, weights, (self._inputs,)).softmax(-1)
        return found / len(models)

    @_one_thread  # a change of threads between two calls makes their pool anew: ten times as long
    def judged(self, models: Sequence[Vector]) -> Judged:
        likely = self._outputs(models)
        classes = self._targets if self._targets.dim() == 1 else self._targets.argmax(-1)
        right = (likely.argmax(-1) == classes).double().mean()
        return Judged(float(F.nll_loss(likely.clamp_min(1e-12).log(), classes)), float(right))

    def distilled(self, models: Sequence[Vector]) -> NetworkProblem:
        student = object.__new__(NetworkProblem)
        student.__dict__ |= self.__dict__
        student._targets = self._outputs(models)
        return student


def _samples(spec: str, name: str, count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The first samples of a task, in the form that the model reads."""
    _, fields = zoo.parse(spec)
    example = modules.example(spec, AT_ONCE)
    image = example.inputs[0]
    if len(example.inputs) != 1 or example.target.dim() != 1:
        raise BadInput(f"{spec} does not tell classes apart", where="MODEL", fix="lenet, mlp")
    flat = image.dim() == 2  # rows of features: images are laid out in a row
    if flat:
        side = math.isqrt(image.shape[1])
        if side**2 != image.shape[1]:
            fix = "mlp:inputs=64,hidden=32"
            raise BadInput(f"{spec} reads {image.shape[1]} features, no square", where="MODEL", fix=fix)
        image = image.unflatten(1, (1, side, side))
    like, data = Batch((image,), example.target), task(name)
    why = data.unfit(like, getattr(fields, "classes", 0))
    if why:
        raise BadInput(f"{spec}: {why}", where="--task", fix="lenet:image=16 on digits")
    found = list(itertools.islice(data.batches(like, seed), max(1, count // AT_ONCE)))
    inputs = torch.cat([batch.inputs[0] for batch in found])
    return inputs.flatten(1) if flat else inputs, torch.cat([batch.target for batch in found])
