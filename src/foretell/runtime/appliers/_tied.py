# pyright: basic
"""A weight that two stages use, such as a token table that is the head too: copies whose gradients are summed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from foretell.runtime.subject import Subject


def tied(module: nn.Module) -> list[list[str]]:
    """The names of each weight that has several."""
    names: dict[nn.Parameter, list[str]] = defaultdict(list)
    for name, weight in module.named_parameters(remove_duplicate=False):
        names[weight].append(name)
    return [found for found in names.values() if len(found) > 1]


class Tied:
    """The copies of one weight on several stages."""

    def __init__(self, subject: Subject, names: list[str], places: Sequence[int]) -> None:
        self.subject, self.names, self.places = subject, names, places
        self.group = self._group()

    def _group(self) -> Any:
        """The ranks along this rank's pipeline that have a copy. All ranks make all groups, in one order."""
        devices = self.subject.mesh.along(*self.subject.mesh.sizes)
        lines = devices.mesh.movedim(list(self.subject.mesh.sizes).index("pp"), -1)
        lines = lines.reshape(-1, self.subject.mesh.ranks("pp"))
        own: Any = None
        for line in lines.tolist():
            ranks = [line[place] for place in self.places]
            group = dist.new_group(ranks)
            own = group if dist.get_rank() in ranks else own
        return own

    def settle(self) -> None:
        """Sum the gradients of the copies; shares of them where they lie in shares."""
        for part in self.subject.parts:
            for name, weight in part.named_parameters():
                if self._is_copy(name) and weight.grad is not None:
                    gradient = weight.grad.to_local() if isinstance(weight.grad, DTensor) else weight.grad
                    dist.all_reduce(gradient, group=self.group)

    def _is_copy(self, name: str) -> bool:
        """Whether a weight is a copy, by its name with or without that of a wrapper."""
        return name in self.names or any(name == f"module.{one}" for one in self.names)

    def whole(self, name: str, share: torch.Tensor) -> tuple[str, torch.Tensor]:
        return (self.names[0], share) if name in self.names else (name, share)
