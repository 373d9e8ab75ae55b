# pyright: basic
"""What stands between products: functions of elements, copies, sums, dropout, softmax, pooling, rows by index."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F

from foretell.calibration.case import Case, Scope, gradients, kernel
from foretell.cost.samples import BACKWARD
from foretell.model.operators.dropout import Dropout
from foretell.model.operators.elementwise import Elementwise
from foretell.model.operators.embedding import Embedding
from foretell.model.operators.pooling import Pool
from foretell.model.operators.reduction import Reduce
from foretell.model.operators.softmax import Softmax

SUMMARY = "operators bound by memory"

ELEMENTS_FEW = [2**12, 2**20]
ELEMENTS_CPU = [2**10, 2**13, 2**16, 2**18, 2**20, 2**22, 2**24]
ELEMENTS_CUDA = [2**12, 2**16, 2**20, 2**22, 2**24, 2**26, 2**28]
FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "copy": torch.clone,
}
TABLES_FEW = [(256, 64, 512)]
TABLES_CPU = [(256, 64, 512), (1024, 256, 8192), (512, 512, 32000)]
TABLES_CUDA = [(8192, 768, 50257), (8192, 2048, 32000), (1024, 768, 50257), (8192, 4096, 128256)]
IMAGES_FEW = [(4, 8, 16)]
IMAGES_CPU = [(8, 16, 32), (8, 64, 16), (4, 64, 56)]
IMAGES_CUDA = [(64, 64, 112), (64, 256, 28), (8, 64, 112)]


def cases(scope: Scope) -> Iterator[Case]:
    for elements, precision in product(scope.choose(ELEMENTS_FEW, ELEMENTS_CPU, ELEMENTS_CUDA), scope.widths):
        yield from _elements(scope, elements, precision)
    for row, precision in product(scope.choose(TABLES_FEW, TABLES_CPU, TABLES_CUDA), scope.widths):
        yield from _table(scope, row, precision)
    for image, precision in product(scope.choose(IMAGES_FEW, IMAGES_CPU, IMAGES_CUDA), scope.widths):
        yield from _pool(scope, image, precision)


def _elements(scope: Scope, elements: int, precision: str) -> Iterator[Case]:
    def one(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], Callable[[], Any]]:
        def make() -> Callable[[], Any]:
            x = scope.random(elements, precision=precision)
            return lambda: function(x)

        return make

    def back(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], Callable[[], Any]]:
        def make() -> Callable[[], Any]:
            x = scope.random(elements, precision=precision, trained=True)
            return gradients(function(x), [x])

        return make

    def two() -> Callable[[], Any]:
        x, z = scope.random(elements, precision=precision), scope.random(elements, precision=precision)
        return lambda: x * z

    def rows() -> Callable[[], Any]:
        x = scope.random(elements // WIDE, WIDE, precision=precision)
        return lambda: x.sum(0)

    sizes = {"item": elements}
    for name, function in FUNCTIONS.items():
        yield kernel(Elementwise(name), sizes, "x y", ("forward",), precision, one(function))
        if name != "copy":  # its gradient is handed on: no kernel
            yield kernel(Elementwise(name), sizes, "x y", ("input_gradient",), precision, back(function))
    yield kernel(Elementwise("multiply"), sizes, "x z y", ("forward",), precision, two)
    dropped = one(lambda x: F.dropout(x, 0.1))
    yield kernel(Dropout(), sizes, "x y", ("forward",), precision, dropped)
    yield kernel(Dropout(), sizes, "x y", ("input_gradient",), precision, back(lambda x: F.dropout(x, 0.1)))
    summed = {"kept": WIDE, "reduced": elements // WIDE}
    yield kernel(Reduce("sum"), summed, "x y", ("forward",), precision, rows)
    soft = {"row": elements // WIDE, "class": WIDE}
    shaped = one(lambda x: x.view(-1, WIDE).softmax(-1))
    yield kernel(Softmax(), soft, "x y", ("forward",), precision, shaped)
    yield kernel(Softmax(), soft, "x y", ("input_gradient",), precision, back(lambda x: x.view(-1, WIDE).softmax(-1)))


WIDE = 256
"""Columns of what has rows."""


def _table(scope: Scope, row: tuple[int, int, int], precision: str) -> Iterator[Case]:
    tokens, wide, vocabulary = row

    def make(trained: bool) -> Callable[[], Any]:
        table = scope.random(vocabulary, wide, precision=precision, trained=trained)
        text = scope.whole(vocabulary, tokens)
        if not trained:
            return lambda: F.embedding(text, table)
        return gradients(F.embedding(text, table), [table])

    sizes, wide_index = {"row": tokens, "vocab": vocabulary, "feature": wide}, {"x": 8}
    for parts, trained in ((("forward",), False), (BACKWARD, True)):
        call = make
        yield kernel(Embedding(), sizes, "x w y", parts, precision, lambda t=trained, c=call: c(t), widths=wide_index)


def _pool(scope: Scope, image: tuple[int, int, int], precision: str) -> Iterator[Case]:
    samples, channels, side = image

    def make(trained: bool) -> Callable[[], Any]:
        x = scope.random(samples, channels, side, side, precision=precision, trained=trained)
        return (lambda: F.max_pool2d(x, 2)) if not trained else gradients(F.max_pool2d(x, 2), [x])

    sizes = {"sample": samples, "channel": channels, "height": side // 2, "width": side // 2}
    operator = Pool("max", (2, 2), (2, 2))
    yield kernel(operator, sizes, "x y", ("forward",), precision, lambda: make(False))
    yield kernel(operator, sizes, "x y", ("input_gradient",), precision, lambda: make(True))
