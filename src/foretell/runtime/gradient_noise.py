# pyright: basic
"""How noisy gradients are while a model trains under whatever plan: what the best batch depends on.

At a look the model is put together again on every rank, and a batch of the task, drawn apart from those that are
trained on, is cut into pieces. Each rank takes the gradients of some of them.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from foretell.errors import BadInput
from foretell.learning.gradient_noise import GradientLook
from foretell.runtime.models import RunnableModel
from foretell.runtime.subject import Subject, cut
from foretell.runtime.tasks import Task
from foretell.runtime.whole_model import WholeModel

ASKED_BY = "--noise-every"

PIECES = 64
"""Of a batch, at most: shorter ones tell more of single samples, and each is a pass of its own."""

APART = 7919
"""Added to the seed of the data: other samples than those of the steps, and the same under every plan."""


class GradientNoise:
    """A whole model, and batches to look at its gradients."""

    def __init__(self, model: RunnableModel, task: Task, subject: Subject, seed: int) -> None:
        self._whole = WholeModel(lambda: model.build(subject.device), subject, ASKED_BY)
        self._loss, self._device = model.loss, subject.device
        self._batches = task.batches(model.like, seed + APART)
        self._batch = len(model.like.target)
        self._pieces = max(count for count in range(1, PIECES + 1) if self._batch % count == 0)
        if self._pieces == 1:
            what = f"a batch of {self._batch} has no equal pieces, {PIECES} at most, to tell noise from gradient"
            raise BadInput(what, where=ASKED_BY, fix="a --batch that 2 divides")

    def look(self, step: int, samples: int) -> GradientLook:
        """Squared lengths of gradients after so many steps. All ranks take part."""
        self._whole.update()
        batch = next(self._batches).to(self._device)
        weights = [weight for weight in self._whole.module.parameters() if weight.requires_grad]
        total = torch.zeros(sum(weight.numel() for weight in weights), device=self._device)
        lengths = torch.zeros(1, dtype=torch.float64, device=self._device)
        for at in range(dist.get_rank(), self._pieces, dist.get_world_size()):
            piece = cut(batch, at, self._pieces)
            loss = self._loss(self._whole.module(*piece.inputs), piece.target)
            gradient = _flat(torch.autograd.grad(loss, weights, allow_unused=True), weights)
            total += gradient
            lengths += gradient.double().square().sum()
        dist.all_reduce(total)
        dist.all_reduce(lengths)
        return GradientLook(
            step=step,
            samples=samples,
            piece=self._batch // self._pieces,
            whole=self._batch,
            of_piece=lengths.item() / self._pieces,
            of_whole=(total.double() / self._pieces).square().sum().item(),
        )


def _flat(gradients: tuple[torch.Tensor | None, ...], weights: list[torch.nn.Parameter]) -> torch.Tensor:
    """One long vector; a weight that the loss does not depend on has no gradient."""
    each = zip(gradients, weights, strict=True)
    return torch.cat([(torch.zeros_like(own) if one is None else one).flatten().float() for one, own in each])
