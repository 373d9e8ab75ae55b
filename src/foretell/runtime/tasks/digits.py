# pyright: basic
"""Handwritten digits: 1,797 images of 8 x 8, ten classes, inside scikit-learn. A fifth of them is held out.

Alpaydin, Kaynak 1998 (Optical Recognition of Handwritten Digits), UCI Machine Learning Repository.
"""

from __future__ import annotations

from typing import Any

import torch

from foretell.errors import MissingExtra
from foretell.runtime.tasks import Task, nothing_given
from foretell.runtime.tasks._images import Images, Labelled

BRIGHTEST = 16.0


def task(given: str) -> Task:
    nothing_given("digits", given)
    return Images("digits", 10, _read)


def _read() -> tuple[Labelled, Labelled]:
    try:
        from sklearn.datasets import load_digits  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError:
        raise MissingExtra("the digits are inside scikit-learn", fix="pip install 'foretell[run]'") from None
    found: Any = load_digits()
    images = torch.tensor(found.images, dtype=torch.float32).unsqueeze(1) / BRIGHTEST
    return Labelled(images, torch.tensor(found.target, dtype=torch.int64)).split(0.2)
