# pyright: basic
"""The loss over a vocabulary or classes; models cast logits of 16 bits to fp32 before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch.nn.functional as F

from foretell.calibration.case import Case, Scope, gradients, kernel
from foretell.model.operators.cross_entropy import CrossEntropy

SUMMARY = "the loss"

FEW = [(64, 512)]
CPU = [(32, 10), (64, 1000), (128, 512), (512, 8192), (256, 32000)]
CUDA = [(64, 1000), (4096, 30522), (1024, 50257), (8192, 50257), (8192, 32000), (8192, 128256)]


def cases(scope: Scope) -> Iterator[Case]:
    for precision, (rows, classes) in product(scope.widths, scope.choose(FEW, CPU, CUDA)):
        for part in ("forward", "input_gradient"):
            yield _loss(scope, rows, classes, part, precision)


def _loss(scope: Scope, rows: int, classes: int, part: str, precision: str) -> Case:
    def make() -> Callable[[], Any]:
        x = scope.random(rows, classes, trained=part != "forward")
        target = scope.whole(classes, rows)
        if part == "forward":
            return lambda: F.cross_entropy(x, target)
        return gradients(F.cross_entropy(x, target), [x])

    sizes, widths = {"row": rows, "class": classes}, {"x": 4, "t": 8}
    return kernel(CrossEntropy(), sizes, "x y", (part,), precision, make, widths=widths)
