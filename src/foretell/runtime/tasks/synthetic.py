# pyright: basic
"""Random numbers of any shape: nothing to learn, but the time is that of real data.

Where this process has a GPU they lie in pinned memory, as a loader of data would have them: the device fetches them
itself, at the full rate of its link.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch

from foretell.runtime.tasks import Batch, Task, nothing_given

DIFFERENT = 4
"""Batches that are made; then they come again. Making numbers is no part of a step."""


def task(given: str) -> Task:
    nothing_given("synthetic", given)
    return Synthetic()


class Synthetic:
    def unfit(self, like: Batch, classes: int) -> str:
        return ""

    def samples(self, like: Batch) -> int:
        return 0

    def batches(self, like: Batch, seed: int) -> Iterator[Batch]:
        generator = torch.Generator().manual_seed(seed)

        def made(tensor: torch.Tensor) -> torch.Tensor:
            if tensor.is_floating_point():
                return torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype)
            return torch.randint(int(tensor.max()) + 1, tensor.shape, generator=generator, dtype=tensor.dtype)

        found = [Batch(tuple(map(made, like.inputs)), made(like.target)) for _ in range(DIFFERENT)]
        if torch.cuda.is_initialized():
            found = [Batch(tuple(one.pin_memory() for one in each.inputs), each.target.pin_memory()) for each in found]
        return itertools.cycle(found)

    def held_out(self, like: Batch) -> Iterator[Batch]:
        return iter(())
