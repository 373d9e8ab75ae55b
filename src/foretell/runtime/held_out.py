# pyright: basic
"""How well a model does on data that was held out, while it trains under whatever plan.

The weights are put together again, as the laws of the appliers do it, in a model that is whole on every rank; each rank
tries some of the batches. So the figure is that of the model, not of the way it is split, and is no part of a step.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from foretell.errors import BadInput
from foretell.runtime.assignment import Check
from foretell.runtime.models import Model
from foretell.runtime.subject import Subject
from foretell.runtime.tasks import Batch, Task

WRAPPED = ("module.", "_orig_mod.")
"""What wrappers put before the name of a buffer."""


class HeldOut:
    """The held-out part of a task, and a whole model to try on it."""

    def __init__(self, model: Model, task: Task, subject: Subject) -> None:
        self._module = model.build().eval()
        self._loss, self._like, self._task, self._subject = model.loss, model.like, task, subject
        if next(task.held_out(model.like), None) is None:
            what = "nothing is held out in this task that could be validated on"
            raise BadInput(what, where="--validate-every", fix="--task digits, fashion, text or your own with a split")

    def check(self, step: int, samples: int, seconds: float) -> Check:
        """Loss and share of right answers, after so many steps. All ranks take part."""
        self._load(self._whole())
        rank, world = dist.get_rank(), dist.get_world_size()
        sums = torch.zeros(4, dtype=torch.float64)  # of losses, of right answers; samples, answers
        with torch.no_grad():
            for batch in itertools.islice(self._task.held_out(self._like), rank, None, world):
                sums += torch.tensor(list(self._tried(batch)), dtype=torch.float64)
        sums = sums.to(self._subject.device)
        dist.all_reduce(sums)
        loss, right, count, answers = sums.tolist()
        metric = right / answers if answers else None
        return Check(step=step, samples=samples, seconds=seconds, loss=loss / count, metric=metric)

    def _load(self, found: dict[str, torch.Tensor]) -> None:
        """Weights that two layers share have one name here and two in the state: so names are checked here."""
        kept = self._module.state_dict().keys()
        wanted = {name for name, _ in self._module.named_parameters()}
        wanted |= {name for name, _ in self._module.named_buffers() if name in kept}
        if missing := sorted(wanted - found.keys()):
            what = f"{len(missing)} tensors of the model are not whole under this plan: {', '.join(missing[:3])}"
            raise BadInput(what, where="--validate-every", fix="a plan that cuts samples only: dp2")
        self._module.load_state_dict(found, strict=False)

    def _tried(self, batch: Batch) -> Iterator[float]:
        outputs = self._module(*batch.inputs)
        count = len(batch.target)
        yield self._loss(outputs, batch.target).item() * count
        classes = isinstance(outputs, torch.Tensor) and outputs.shape[:-1] == batch.target.shape
        yield (outputs.argmax(-1) == batch.target).sum().item() if classes else 0
        yield count
        yield batch.target.numel() if classes else 0

    def _whole(self) -> dict[str, torch.Tensor]:
        """Weights and buffers of all stages, under the names of the model."""
        own = self._subject.whole_weights()
        own |= self._buffers()
        if "pp" not in self._subject.mesh:
            return own
        stages: list[Any] = [None] * self._subject.mesh.ranks("pp")
        dist.all_gather_object(stages, own, group=self._subject.mesh.group("pp"))
        return {name: tensor for stage in stages for name, tensor in stage.items()}

    def _buffers(self) -> dict[str, torch.Tensor]:
        """What is not trained, such as the means of batch norm: this rank's own."""
        known = dict(self._module.named_buffers())
        found: dict[str, torch.Tensor] = {}
        for part in self._subject.parts:
            for name, buffer in part.named_buffers():
                plain = _unwrapped(name)
                if plain in known and buffer.shape == known[plain].shape:
                    found[plain] = buffer.detach().cpu()
        return found


def _unwrapped(name: str) -> str:
    while name.startswith(WRAPPED):
        name = name.removeprefix(next(word for word in WRAPPED if name.startswith(word)))
    return name
