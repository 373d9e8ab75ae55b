# pyright: basic
"""Batches of a task as ranks have them: as they come, or each rank with its own mix of classes (`learning.skew`)."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator

import numpy as np
import torch

from foretell.errors import BadInput
from foretell.learning.skew import Skew, skew, workers_of
from foretell.runtime.assignment import Assignment
from foretell.runtime.models import RunnableModel
from foretell.runtime.tasks import Batch, Task

KEPT = 4
"""Batches' worth of samples of a class that are kept until somebody wants them; older ones are let go."""

MOST = 1000
"""Batches in which a class has to turn up."""


def batches_of(given: Task, assignment: Assignment, found: RunnableModel) -> Iterator[Batch]:
    """An endless row of batches, the same on every rank."""
    row = given.batches(found.like, assignment.seed)
    return _mixed(row, skew_of(assignment, found), assignment.seed) if assignment.skew else row


def skew_of(assignment: Assignment, found: RunnableModel) -> Skew:
    """What each rank has of the classes."""
    if found.classes < 2 or found.like.target.dim() != 1:
        raise BadInput("data is shared out by classes, and this task has none", where="--skew", fix="--task digits")
    return skew(workers_of(assignment.setting.plan), found.classes, assignment.skew, assignment.seed)


def _mixed(row: Iterator[Batch], found: Skew, seed: int) -> Iterator[Batch]:
    """Samples in an order in which the share of each rank has its mix. A class that nobody wants is let go."""
    draws = np.random.default_rng([seed, 7])
    first = next(row)
    count, workers = len(first.target), len(found.amounts)
    kept: defaultdict[int, deque[tuple[torch.Tensor, ...]]] = defaultdict(lambda: deque(maxlen=KEPT * count))
    _keep(first, kept)
    while True:
        parts = np.array_split(np.arange(count), workers)
        wanted = np.concatenate([found.classes(at, len(part), draws) for at, part in enumerate(parts)])
        chosen = [_next(int(label), kept, row) for label in wanted]
        *inputs, target = (torch.stack(tensors) for tensors in zip(*chosen, strict=True))
        yield Batch(tuple(inputs), target)


def _keep(batch: Batch, kept: defaultdict[int, deque[tuple[torch.Tensor, ...]]]) -> None:
    for at, label in enumerate(batch.target.tolist()):
        kept[label].append((*(tensor[at] for tensor in batch.inputs), batch.target[at]))


def _next(
    label: int, kept: defaultdict[int, deque[tuple[torch.Tensor, ...]]], row: Iterator[Batch]
) -> tuple[torch.Tensor, ...]:
    for _ in range(MOST):
        if kept[label]:
            return kept[label].popleft()
        _keep(next(row), kept)
    what = f"no sample of class {label} in {MOST:,} batches"
    raise BadInput(what, where="--skew", fix="a model with as many classes as the task has")
