# pyright: basic
"""What some algorithms ask of a run besides gradients: other first weights, judgements, other models' answers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from foretell.errors import BadInput
from foretell.learning.vector import Vector
from foretell.learning.world import Judged
from foretell.runtime.models import RunnableModel
from foretell.runtime.tasks import Batch, Task

MOST = 8
"""Held-out batches that a judgement looks at."""


def first_weights(build: Callable[[], nn.Module], seed: int) -> Vector:
    """Those of a module that is built with a seed. Steps draw as if it had not been."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        weights = (weight for weight in build().parameters() if weight.requires_grad)
        return torch.cat([weight.detach().flatten() for weight in weights]).cpu().numpy()


def judged(module: nn.Module, model: RunnableModel, batches: Iterable[Batch]) -> float:
    """The mean loss of a module on held-out batches, as it is used and not as it is trained."""
    begun = module.training
    module.eval()
    with torch.no_grad():
        losses = [(model.loss(module(*one.inputs), one.target).item(), len(one.target)) for one in batches]
    module.train(begun)
    return sum(loss * count for loss, count in losses) / sum(count for _, count in losses)


def to_judge_by(task: Task, like: Batch) -> list[Batch]:
    """The first held-out batches of a task."""
    found = list(itertools.islice(task.held_out(like), MOST))
    if not found:
        what = "this method judges models on data that was held out, and this task holds nothing out"
        raise BadInput(what, where="--task", fix="--task digits, fashion, text or your own with a split")
    return found


def soft_loss(outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Cross-entropy with probabilities in the place of classes (Hinton et al. 2015, at temperature 1)."""
    return -(target * F.log_softmax(outputs, -1)).sum(-1).mean()


class Answers:
    """What a student learns: the mean probabilities of its teachers, for whatever batch."""

    def __init__(self, answer: Callable[[Vector, Batch], torch.Tensor], models: Sequence[Vector]) -> None:
        self._answer, self._models = answer, models

    def of(self, batch: Batch) -> Batch:
        likely: Any = sum(self._answer(model, batch).softmax(-1) for model in self._models)
        return Batch(batch.inputs, likely / len(self._models))


class RunProblem:
    """The problem of one rank: its module is the one that it trains, and takes any weights for a moment."""

    def __init__(self, model: RunnableModel, task: Task, module: nn.Module, write: Callable[[Vector], None]) -> None:
        self._model, self._task, self._module, self._write = model, task, module, write
        self._batches: list[Batch] = []

    def start(self, seed: int) -> Vector:
        return first_weights(self._model.build, seed)

    def judged(self, models: Sequence[Vector]) -> Judged:
        self._batches = self._batches or to_judge_by(self._task, self._model.like)
        self._write(np.mean(models, axis=0, dtype=models[0].dtype) if len(models) > 1 else models[0])
        loss = judged(self._module, self._model, self._batches)
        return Judged(loss, loss)

    def distilled(self, models: Sequence[Vector]) -> Answers:
        if not self._model.classes:
            what = "a student learns how likely its teachers find each class, and this model tells no classes apart"
            raise BadInput(what, where="--method", fix="ensemble, population")
        return Answers(self._answer, models)

    def _answer(self, weights: Vector, batch: Batch) -> torch.Tensor:
        self._write(weights)
        self._module.eval()
        with torch.no_grad():
            found = self._module(*batch.inputs)
        self._module.train()
        return found
