# pyright: basic
"""How well a model does on data that was held out, while it trains under whatever plan.

The model is put together again on every rank, and each rank tries some of the batches.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch
import torch.distributed as dist
import torch.nn.functional as F

from foretell.errors import BadInput
from foretell.runtime.assignment import HeldOutCheck
from foretell.runtime.models import RunnableModel
from foretell.runtime.subject import Subject
from foretell.runtime.tasks import Batch, Task
from foretell.runtime.whole_model import WholeModel

ASKED_BY = "--validate-every"

LEAST = 1e-12
"""A probability of nothing, whose logarithm is still a number."""

FLAT = 700.0
"""An entropy whose exponential is still a number."""


class HeldOut:
    """The held-out part of a task, and a whole model to try on it."""

    def __init__(self, model: RunnableModel, task: Task, subject: Subject) -> None:
        self._whole = WholeModel(model.build, subject, ASKED_BY)
        self._loss, self._like, self._task, self._device = model.loss, model.like, task, subject.device
        if next(task.held_out(model.like), None) is None:
            what = "nothing is held out in this task that could be validated on"
            raise BadInput(what, where=ASKED_BY, fix="--task digits, fashion, text or your own with a split")

    def check(self, step: int, samples: int, seconds: float) -> HeldOutCheck:
        """Loss and share of right answers, after so many steps. All ranks take part."""
        self._whole.update()
        rank, world = dist.get_rank(), dist.get_world_size()
        sums = torch.zeros(6, dtype=torch.float64)  # losses, samples; right answers, answers; entropies, tokens
        with torch.no_grad():
            for batch in itertools.islice(self._task.held_out(self._like), rank, None, world):
                sums += torch.tensor(list(self._tried(batch)), dtype=torch.float64)
        sums = sums.to(self._device)
        dist.all_reduce(sums)
        loss, count, right, answers, entropy, tokens = sums.tolist()
        metric = right / answers if answers else None
        perplexity = math.exp(min(entropy / tokens, FLAT)) if tokens else None
        return HeldOutCheck(
            step=step, samples=samples, seconds=seconds, loss=loss / count, metric=metric, perplexity=perplexity
        )

    def together(self, step: int, samples: int, seconds: float) -> HeldOutCheck:
        """The same of models that differ from rank to rank: the mean of what they find likely."""
        self._whole.update()
        loss = right = count = 0.0
        with torch.no_grad():
            for batch in self._task.held_out(self._like):
                likely = self._whole.module(*batch.inputs)
                if likely.shape[:-1] != batch.target.shape:
                    what = "answers are averaged as probabilities of classes, and this model tells none apart"
                    raise BadInput(what, where=ASKED_BY, fix="a run without it")
                likely = likely.softmax(-1)
                dist.all_reduce(likely)
                likely = (likely / dist.get_world_size()).flatten(0, -2)
                target = batch.target.flatten()
                loss += F.nll_loss(likely.clamp_min(LEAST).log(), target, reduction="sum").item()
                right += (likely.argmax(-1) == target).sum().item()
                count += len(target)
        return HeldOutCheck(step=step, samples=samples, seconds=seconds, loss=loss / count, metric=right / count)

    def _tried(self, batch: Batch) -> Iterator[float]:
        outputs = self._whole.module(*batch.inputs)
        count = len(batch.target)
        yield self._loss(outputs, batch.target).item() * count
        classes = isinstance(outputs, torch.Tensor) and outputs.shape[:-1] == batch.target.shape
        yield count
        yield (outputs.argmax(-1) == batch.target).sum().item() if classes else 0
        yield batch.target.numel() if classes else 0
        tokens = classes and batch.target.dim() > 1
        yield _summed_loss(outputs, batch.target) if tokens else 0
        yield batch.target.numel() if tokens else 0


def _summed_loss(logits: torch.Tensor, tokens: torch.Tensor) -> float:
    """What perplexity is made of."""
    return F.cross_entropy(logits.float().flatten(0, -2), tokens.flatten(), reduction="sum").item()
