# pyright: basic
"""Handwritten digits: 1,797 images of 8 x 8, ten classes, inside scikit-learn. A fifth of them is held out.

Alpaydin, Kaynak 1998 (Optical Recognition of Handwritten Digits), UCI Machine Learning Repository.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch

from foretell.errors import MissingExtra
from foretell.runtime.tasks import Task, nothing_given
from foretell.runtime.tasks._images import Images, Labelled

BRIGHTEST = 16.0
SIDE = 8
FILE = "datasets/data/digits.csv.gz"
"""In the package: 64 brightnesses and a class on each line. To import all of scikit-learn takes each rank a second."""


def task(given: str) -> Task:
    nothing_given("digits", given)
    return Images("digits", 10, _read)


def _read() -> tuple[Labelled, Labelled]:
    import numpy

    package = importlib.util.find_spec("sklearn")
    file = Path(package.origin).parent / FILE if package is not None and package.origin else None
    if file is None or not file.is_file():
        raise MissingExtra("the digits are inside scikit-learn", fix="pip install 'foretell[run]'")
    found = torch.from_numpy(numpy.loadtxt(file, delimiter=",", dtype="float32"))
    images = found[:, :-1].reshape(-1, 1, SIDE, SIDE) / BRIGHTEST
    return Labelled(images, found[:, -1].long()).split(0.2)
