# pyright: basic
"""From parts of all images to all of some images, and back: where ranks share out samples in the rest of a model.

Every rank has a loss of its own then, as under data parallelism, and gradients count as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from foretell.runtime import waiting
from foretell.runtime.appliers._cuts import Cuts, put, resized, taken


class IntoSamples(nn.Module):
    """All of this rank's images, out of everybody's parts of all images."""

    def __init__(self, shape: torch.Size, cuts: Cuts) -> None:
        super().__init__()
        self.sizes, self.cuts = cuts.sizes(shape), cuts

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _IntoSamples.apply(x, self.sizes, self.cuts)


class IntoParts(IntoSamples):
    """The other way round."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _IntoParts.apply(x, self.sizes, self.cuts)


class _IntoSamples(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, sizes: list[int], cuts: Cuts) -> torch.Tensor:
        ctx.sizes, ctx.cuts = sizes, cuts
        return _into_samples(x, sizes, cuts)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return _into_parts(gradient, ctx.sizes, ctx.cuts), None, None


class _IntoParts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, sizes: list[int], cuts: Cuts) -> torch.Tensor:
        ctx.sizes, ctx.cuts = sizes, cuts
        return _into_parts(x, sizes, cuts)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return _into_samples(gradient, ctx.sizes, ctx.cuts), None, None


def _into_samples(x: torch.Tensor, sizes: list[int], cuts: Cuts) -> torch.Tensor:
    ranks = dist.get_world_size(cuts.all)
    samples = x.shape[0] // ranks
    shapes = [
        (samples, *resized(x.shape, cuts, [own.count for own in cuts.rows(sizes, rank)])[1:]) for rank in range(ranks)
    ]
    found = _exchanged([part.contiguous() for part in x.chunk(ranks)], shapes, cuts.all)
    whole = x.new_empty((samples, *resized(x.shape, cuts, sizes)[1:]))
    for rank, part in enumerate(found):
        put(whole, part, cuts, cuts.rows(sizes, rank))
    return whole


def _into_parts(x: torch.Tensor, sizes: list[int], cuts: Cuts) -> torch.Tensor:
    ranks, rank = dist.get_world_size(cuts.all), dist.get_rank(cuts.all)
    given = [taken(x, cuts, cuts.rows(sizes, other)).contiguous() for other in range(ranks)]
    return torch.cat(_exchanged(given, [given[rank].shape] * ranks, cuts.all))


@waiting.speaks
def _exchanged(
    given: list[torch.Tensor], shapes: Sequence[Sequence[int]], group: dist.ProcessGroup
) -> list[torch.Tensor]:
    """What every rank has for this one, in these shapes, for what this one has for each."""
    to, of = [one.numel() for one in given], [torch.Size(shape).numel() for shape in shapes]
    came = given[0].new_empty(sum(of))
    with waiting.along(group):
        dist.all_to_all_single(came, torch.cat([one.view(-1) for one in given]), of, to, group=group)
    return [one.view(shape) for one, shape in zip(came.split(of), shapes, strict=True)]
