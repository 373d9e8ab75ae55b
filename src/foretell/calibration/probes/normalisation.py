# pyright: basic
"""Normalisations: over channels of images (batch) and over features of tokens (layer, RMS)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F

from foretell.calibration.case import Case, Scope, gradients, kernel
from foretell.cost.samples import BACKWARD
from foretell.model.operators.normalization import Normalize

SUMMARY = "normalisations"

TOKENS_FEW = [(64, 64), (256, 256)]
TOKENS_CPU = [(16, 64), (128, 64), (128, 256), (512, 512), (2048, 512), (512, 1024), (4096, 256)]
TOKENS_CUDA = [(512, 768), (4096, 768), (16384, 1024), (4096, 4096), (16384, 4096), (12608, 768), (6272, 384)]
IMAGES_FEW = [(4, 8, 16)]
IMAGES_CPU = [(8, 16, 32), (8, 64, 16), (2, 64, 56), (2, 256, 14), (32, 32, 8)]
IMAGES_CUDA = [(64, 64, 112), (64, 256, 56), (64, 64, 56), (64, 512, 28), (64, 1024, 14), (64, 2048, 7), (8, 64, 112)]
BOTH = (("forward",), BACKWARD)


def cases(scope: Scope) -> Iterator[Case]:
    layouts = ("first",) if scope.quick else ("first", "last")
    for row, precision, parts in product(scope.choose(TOKENS_FEW, TOKENS_CPU, TOKENS_CUDA), scope.widths, BOTH):
        yield _tokens(scope, "layer", *row, precision, parts)
        yield _tokens(scope, "rms", *row, precision, parts)
    rows = scope.choose(IMAGES_FEW, IMAGES_CPU, IMAGES_CUDA)
    for layout, row, precision, parts in product(layouts, rows, scope.widths, BOTH):
        yield _images(scope, *row, precision, layout, parts)


def _tokens(scope: Scope, kind: str, rows: int, wide: int, precision: str, parts: tuple[str, ...]) -> Case:
    trained = parts == BACKWARD

    def make() -> Callable[[], Any]:
        x = scope.random(rows, wide, precision=precision, trained=trained)
        w, b = (scope.random(wide, precision=precision, trained=trained) for _ in range(2))
        if kind == "layer":
            function, weights = (lambda: F.layer_norm(x, (wide,), w, b)), [w, b]
        else:
            function, weights = (lambda: F.rms_norm(x, (wide,), w)), [w]
        return gradients(function(), [x, *weights]) if trained else function

    sizes = {"group": rows, "member": wide, "affine": wide}
    return kernel(Normalize(kind), sizes, "x w b y" if kind == "layer" else "x w y", parts, precision, make)


def _images(
    scope: Scope, samples: int, channels: int, side: int, precision: str, layout: str, parts: tuple[str, ...]
) -> Case:
    trained = parts == BACKWARD

    def make() -> Callable[[], Any]:
        order = torch.channels_last if layout == "last" else torch.contiguous_format
        x = scope.random(samples, channels, side, side, precision=precision).to(memory_format=order)
        x = x.requires_grad_(trained)
        w, b = (scope.random(channels, trained=trained) for _ in range(2))  # autocast keeps them in fp32
        mean, variance = torch.zeros(channels, device=scope.device), torch.ones(channels, device=scope.device)

        def function() -> torch.Tensor:
            return F.batch_norm(x, mean, variance, w, b, training=True)

        return gradients(function(), [x, w, b]) if trained else function

    sizes = {"group": channels, "member": samples * side * side, "affine": channels}
    wide = {"w": 4, "b": 4}
    return kernel(Normalize("batch"), sizes, "x w b y", parts, precision, make, widths=wide, layout=layout)
