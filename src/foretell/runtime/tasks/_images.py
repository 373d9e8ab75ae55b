# pyright: basic
"""Images with a class each, in the size and channels that a model reads."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from foretell.runtime.tasks import Batch


class Labelled(NamedTuple):
    """Images from 0 to 1, and their classes."""

    images: Any  # samples, channels, height, width: a tensor, or what gives several of different sizes for some rows
    classes: torch.Tensor

    def split(self, share: float) -> tuple[Labelled, Labelled]:
        """Two parts, the second with this share; the order is shuffled once, always the same way."""
        order = torch.randperm(len(self.classes), generator=torch.Generator().manual_seed(0))
        kept = round(len(order) * (1 - share))
        one, other = order[:kept], order[kept:]
        return Labelled(self.images[one], self.classes[one]), Labelled(self.images[other], self.classes[other])


@dataclass(frozen=True)
class Images:
    """A task of images. They are read when the first batch is asked for."""

    name: str
    count: int  # classes
    read: Callable[[], tuple[Labelled, Labelled]]  # to train on, and held out

    @functools.cached_property
    def _parts(self) -> tuple[Labelled, Labelled]:
        return self.read()

    def unfit(self, like: Batch, classes: int) -> str:
        image = like.inputs[0]
        if len(like.inputs) != 1 or image.dim() != 4 or not image.is_floating_point() or like.target.dim() != 1:
            return f"{self.name} are images with a class each; this model reads something else"
        return f"{self.name} have {self.count} classes, this model {classes}" if 0 < classes < self.count else ""

    def samples(self, like: Batch) -> int:
        return len(self._parts[0].classes)

    def batches(self, like: Batch, seed: int) -> Iterator[Batch]:
        """In a new order each time round."""
        found = self._parts[0]
        count, generator = len(like.target), torch.Generator().manual_seed(seed)
        while True:
            order = torch.randperm(len(found.classes), generator=generator)
            order = order.repeat(-(-count // len(order)))  # a batch may be larger than all there is
            for rows in order.split(count):
                if len(rows) == count:
                    yield _batch(found, rows, like.inputs[0])

    def held_out(self, like: Batch) -> Iterator[Batch]:
        found = self._parts[1]
        for rows in torch.arange(len(found.classes)).split(len(like.target)):
            yield _batch(found, rows, like.inputs[0])


def _batch(found: Labelled, rows: torch.Tensor, like: torch.Tensor) -> Batch:
    chosen = found.images[rows]
    parts = chosen if isinstance(chosen, list) else [chosen]
    return Batch((torch.cat([_as_read(part, like) for part in parts]),), found.classes[rows])


def _as_read(images: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """In the size and channels of what a model reads, whatever else is in a batch."""
    images = images.to(like.dtype)
    if images.shape[2:] != like.shape[2:]:
        images = F.interpolate(images, size=like.shape[2:], mode="bilinear")
    if images.shape[1] != like.shape[1]:
        images = images.mean(1, keepdim=True).expand(-1, like.shape[1], -1, -1)
    return images
