# pyright: basic
"""What a run of real processes learns, sample by sample: the same model, batches and shares of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from foretell.learning.vector import Rows, Shapes, Vector
from foretell.runtime.assignment import Assignment
from foretell.runtime.methods.problem import first_weights, judged, to_judge_by
from foretell.runtime.models import model_of
from foretell.runtime.skewed import batches_of, skew_of
from foretell.runtime.subject import cut
from foretell.runtime.tasks import Batch, task
from foretell.virtual.problem import Judged


class GradientRun:
    """Rows are the number of a worker and that of its gradient; `losses` has what each of them saw."""

    metric: str = "loss"
    samples: int = 1
    labels: Rows = np.zeros(1, np.int64)  # its batches are shared out as those of the run were

    def __init__(self, assignment: Assignment) -> None:
        setting = assignment.setting
        self.name = f"{assignment.model} on {assignment.task}"
        self._workers, self._parts = setting.plan.ranks, setting.plan.microbatches
        torch.manual_seed(assignment.seed)
        found = model_of(assignment, setting)
        self._model, self._loss = found, found.loss
        self.amounts = skew_of(assignment, found).amounts if assignment.skew else ()
        self._task = task(assignment.task)
        self._batches, self._seen = batches_of(self._task, assignment, found), list[Batch]()
        torch.manual_seed(assignment.seed)
        self._module = found.build()
        self._weights = [weight for weight in self._module.parameters() if weight.requires_grad]
        self.shapes: Shapes = tuple(tuple(weight.shape) for weight in self._weights)
        self.losses: dict[tuple[int, int], float] = {}

    def start(self, seed: int) -> Vector:
        return first_weights(self._model.build, seed)

    def gradients(self, weights: Sequence[Vector], rows: Sequence[Rows]) -> Sequence[Vector]:
        return [self._gradient(one, *map(int, row)) for one, row in zip(weights, rows, strict=True)]

    def _gradient(self, weights: Vector, worker: int, step: int) -> Vector:
        self._write(weights)
        self._module.zero_grad()
        total, own = 0.0, cut(self._batch(step), worker, self._workers)
        for at in range(self._parts):
            mine = cut(own, at, self._parts)
            loss = self._loss(self._module(*mine.inputs), mine.target) / self._parts
            loss.backward()
            total += loss.item()
        self.losses[worker, step] = total
        found = [torch.zeros_like(one) if one.grad is None else one.grad for one in self._weights]
        return torch.cat([one.flatten() for one in found]).numpy()

    @torch.no_grad()
    def _write(self, weights: Vector) -> None:
        parts = torch.from_numpy(weights).split([weight.numel() for weight in self._weights])
        for weight, part in zip(self._weights, parts, strict=True):
            weight.copy_(part.view_as(weight))

    def _batch(self, step: int) -> Batch:
        while len(self._seen) <= step:
            self._seen.append(next(self._batches))
        return self._seen[step]

    def judged(self, models: Sequence[Vector]) -> Judged:
        """On what was held out, or, where nothing was, on the first batch."""
        self._write(models[0] if len(models) == 1 else np.mean(models, axis=0))
        held_out = next(self._task.held_out(self._model.like), None)
        batches = to_judge_by(self._task, self._model.like) if held_out else [self._batch(0)]
        loss = judged(self._module, self._model, batches)
        return Judged(loss, loss)

    def distilled(self, models: Sequence[Vector]) -> GradientRun:
        raise NotImplementedError("nobody's answers stand in the place of the task's")
