# pyright: basic
"""Handwritten digits: 1,797 images of 8 x 8, ten classes, inside scikit-learn.

Alpaydin, Kaynak 1998 (Optical Recognition of Handwritten Digits), UCI Machine Learning Repository.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F

from foretell.errors import MissingExtra
from foretell.runtime.tasks import Batch

CLASSES = 10
BRIGHTEST = 16.0


def unfit(like: Batch, classes: int) -> str:
    image = like.inputs[0]
    if len(like.inputs) != 1 or image.dim() != 4 or not image.is_floating_point() or like.target.dim() != 1:
        return "digits are images with a class each; this model reads something else"
    return f"digits have {CLASSES} classes, this model {classes}" if classes < CLASSES else ""


def batches(like: Batch, seed: int) -> Iterator[Batch]:
    """Images in the size and channels of the model, in a new order each time round."""
    images, classes = _digits(like.inputs[0])
    count, generator = len(like.target), torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(len(images), generator=generator)
        for rows in order.split(count):
            if len(rows) == count:
                yield Batch((images[rows],), classes[rows])


def _digits(like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    try:
        from sklearn.datasets import load_digits  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError:
        raise MissingExtra("the digits are inside scikit-learn", fix="pip install 'foretell[run]'") from None
    found: Any = load_digits()
    images = torch.tensor(found.images, dtype=like.dtype).unsqueeze(1) / BRIGHTEST
    images = F.interpolate(images, size=like.shape[2:], mode="bilinear").expand(-1, like.shape[1], -1, -1)
    return images.contiguous(), torch.tensor(found.target, dtype=torch.int64)
