# pyright: basic
"""What LARS and LAMB share: each weight's step is as long as the weight itself is, not as its gradient is.

Norms are of whole weights. Shares of FSDP2 know how to sum theirs over ranks; those of tensor, filter and channel
splits do not, so such plans are refused (`runtime/worker.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.distributed.tensor import DTensor


def norm(values: torch.Tensor) -> torch.Tensor:
    """The length of a whole weight, also of one that lies in shares."""
    found = torch.linalg.vector_norm(values.float())
    return found.full_tensor() if isinstance(found, DTensor) else found


def ratio(above: torch.Tensor, below: torch.Tensor) -> torch.Tensor:
    """above / below, and 1 where one of them is 0: a weight that is zero must be able to leave it."""
    sound = (above > 0) & (below > 0)
    return torch.where(sound, above / torch.where(sound, below, torch.ones_like(below)), torch.ones_like(above))


class Layerwise(torch.optim.Optimizer):
    """Updates weight by weight. Biases and norms, which have one dim, are neither decayed nor scaled (both papers)."""

    def each(self) -> Iterator[tuple[dict[str, Any], torch.Tensor, torch.Tensor, bool]]:
        """The settings, the weight, its gradient, and whether it is scaled."""
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    yield group, weight, weight.grad, weight.dim() > 1

    def update(self, settings: dict[str, Any], weight: torch.Tensor, gradient: torch.Tensor, scaled: bool) -> None:
        """One weight's."""
        raise NotImplementedError

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for settings, weight, gradient, scaled in self.each():
            self.update(settings, weight, gradient, scaled)
