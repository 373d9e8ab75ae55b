# pyright: basic
"""Partitioned checkpoints: of what a layer saves to run again, each tensor rank keeps a share and gathers the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from foretell.plan.policies.partitioned import Partitioned
from foretell.plan.setting import Setting
from foretell.runtime.subject import Subject

ORDER = 31
"""When recomputation has made checkpoints of layers, and before what they save goes to the host."""


def refusals(part: Partitioned, setting: Setting) -> Iterator[tuple[str, str]]:
    return iter(())


def apply(part: Partitioned, subject: Subject) -> None:
    group = subject.mesh.group("tp")
    for own in subject.parts:
        for _, layer in subject.layers(own):
            _saved_in_shares(layer, group)


def _saved_in_shares(layer: nn.Module, group: dist.ProcessGroup) -> None:
    """Its checkpoint saves its inputs alone: those that are made by other layers are cut, as flat lists of numbers."""
    inner, ranks, place = layer.forward, dist.get_world_size(group), dist.get_rank(group)

    def forward(*inputs: Any) -> Any:
        cut = {one.data_ptr() for one in inputs if isinstance(one, torch.Tensor) and one.requires_grad}

        def away(saved: torch.Tensor) -> tuple[torch.Size | None, torch.Tensor]:
            if saved.data_ptr() not in cut or saved.numel() % ranks:
                return None, saved
            return saved.shape, saved.detach().reshape(-1).chunk(ranks)[place].clone()

        def back(packed: tuple[torch.Size | None, torch.Tensor]) -> torch.Tensor:
            shape, saved = packed
            if shape is None:
                return saved
            whole = saved.new_empty(saved.numel() * ranks)
            dist.all_gather_into_tensor(whole, saved, group=group)
            return whole.view(shape)

        with torch.autograd.graph.saved_tensors_hooks(away, back):
            return inner(*inputs)

    layer.forward = forward
