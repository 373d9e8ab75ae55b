# pyright: basic
"""Matrix products: a dense layer's three, over rows and widths, and batched ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch.nn.functional as F

from foretell.calibration.case import Case, Scope, kernel
from foretell.model.operator import PARTS
from foretell.model.operators.matmul import Matmul

SUMMARY = "matrix products"

FEW = [(8, 256, 256), (256, 256, 256), (256, 512, 1024)]
CPU = [
    (rows, ins, outs)
    for rows in (1, 8, 64, 512, 2048)
    for ins, outs in ((64, 64), (256, 256), (256, 1024), (1024, 256), (784, 512), (512, 10), (1024, 1024))
] + [(64, 1024, 4096), (512, 4096, 1024), (256, 512, 8192)]
CUDA = [
    (rows, ins, outs)
    for rows in (64, 1024, 4096, 16384)
    for ins, outs in ((768, 768), (768, 3072), (3072, 768), (1024, 4096), (2048, 2048), (4096, 4096), (4096, 14336))
] + [(4096, 768, 50257), (4096, 2048, 32000), (256, 2048, 1000), (64, 25088, 4096), (100352, 96, 384), (512, 512, 512)]
BATCHED_CPU = [(8, 64, 32, 64), (16, 128, 64, 128), (32, 128, 128, 64)]
BATCHED_CUDA = [(192, 512, 64, 512), (192, 512, 512, 64), (96, 1024, 64, 1024), (768, 197, 64, 197)]


def cases(scope: Scope) -> Iterator[Case]:
    rows = scope.choose(FEW, CPU, CUDA)
    for precision, sizes, part in product(scope.precisions, rows, PARTS):
        yield _dense(scope, *sizes, part, precision)
    for precision, sizes in product(scope.precisions, scope.choose([], BATCHED_CPU, BATCHED_CUDA)):
        yield _batched(scope, *sizes, precision)


def _dense(scope: Scope, rows: int, ins: int, outs: int, part: str, precision: str) -> Case:
    def make() -> Callable[[], Any]:
        x, w = scope.random(rows, ins, precision=precision), scope.random(outs, ins, precision=precision)
        y = scope.random(rows, outs, precision=precision)
        if part == "forward":
            return lambda: F.linear(x, w)
        return (lambda: y.mm(w)) if part == "input_gradient" else (lambda: y.t().mm(x))

    sizes = {"batch": 1, "row": rows, "in": ins, "out": outs}
    return kernel(Matmul(), sizes, "x w y", (part,), precision, make, direct=True)


def _batched(scope: Scope, batch: int, rows: int, ins: int, outs: int, precision: str) -> Case:
    def make() -> Callable[[], Any]:
        x = scope.random(batch, rows, ins, precision=precision)
        w = scope.random(batch, ins, outs, precision=precision)
        return lambda: x.bmm(w)

    sizes = {"batch": batch, "row": rows, "in": ins, "out": outs}
    return kernel(Matmul(), sizes, "x w y", ("forward",), precision, make)
