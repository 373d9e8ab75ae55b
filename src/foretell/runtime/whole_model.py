# pyright: basic
"""A model that is whole on every rank, with the weights that are trained under whatever plan.

The weights are put together again, as the laws of the appliers do it. So what is seen of it is the model's, not that of
the way it is split, and is no part of a step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from foretell.errors import BadInput
from foretell.runtime.subject import Subject

WRAPPED = ("module.", "_orig_mod.")
"""What wrappers put before the name of a buffer."""


class WholeModel:
    """A module beside the one that is trained, which takes its weights when it is asked to. It is built when it is
    first asked, so that steps before that have their memory to themselves."""

    def __init__(self, build: Callable[[], nn.Module], subject: Subject, asked_by: str) -> None:
        self._build, self._subject, self._asked_by = build, subject, asked_by

    @functools.cached_property
    def module(self) -> nn.Module:
        """Without dropout, and with batch norm by the means that it has learnt. Steps draw as if it were not there."""
        with torch.random.fork_rng([torch.cuda.current_device()] if torch.cuda.is_initialized() else []):
            return self._build().eval()

    def update(self) -> None:
        """Take the weights as they are now. All ranks take part."""
        self.load(self._whole())

    def load(self, found: dict[str, torch.Tensor]) -> None:
        """Weights that two layers share have one name here and two in the state: so names are checked here."""
        kept = self.module.state_dict().keys()
        wanted = {name for name, _ in self.module.named_parameters()}
        wanted |= {name for name, _ in self.module.named_buffers() if name in kept}
        if missing := sorted(wanted - found.keys()):
            what = f"{len(missing)} tensors of the model are not whole under this plan: {', '.join(missing[:3])}"
            raise BadInput(what, where=self._asked_by, fix="a plan that cuts samples only: dp2")
        self.module.load_state_dict(found, strict=False)

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
        known = dict(self.module.named_buffers())
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
