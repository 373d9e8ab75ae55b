# pyright: basic
"""Convolutions: dense, grouped, depthwise and of volumes; the three parts, both layouts.

Some have far more filters than places: a processor's library brings filters into its own order in each call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple

import torch

from foretell.calibration.case import Case, Scope, kernel
from foretell.model.operator import PARTS
from foretell.model.operators.convolution import Convolution, extent

SUMMARY = "convolutions"


class Layer(NamedTuple):
    """One layer."""

    samples: int
    ins: int
    outs: int
    image: int
    window: int
    stride: int = 1
    groups: int = 1
    space: int = 2


FEW = [Layer(4, 8, 16, 16, 3), Layer(4, 16, 16, 16, 1), Layer(4, 16, 16, 16, 3, 1, 16)]
CPU = [
    Layer(8, 3, 32, 32, 3), Layer(32, 1, 6, 28, 5), Layer(8, 16, 16, 32, 3), Layer(8, 32, 64, 16, 3, 2),
    Layer(32, 64, 64, 16, 3), Layer(8, 128, 128, 8, 3), Layer(8, 256, 256, 4, 3), Layer(8, 512, 512, 2, 3),
    Layer(4, 256, 512, 4, 3, 2), Layer(2, 512, 512, 2, 3), Layer(8, 64, 256, 16, 1), Layer(8, 256, 64, 16, 1),
    Layer(2, 3, 64, 112, 7, 2), Layer(2, 64, 64, 56, 3), Layer(2, 256, 256, 14, 3), Layer(2, 512, 512, 7, 3),
    Layer(8, 32, 32, 32, 3, 1, 32), Layer(8, 96, 96, 16, 3, 2, 96), Layer(8, 64, 64, 16, 3, 1, 8),
    Layer(1, 4, 16, 32, 3, 1, 1, 3),
]  # fmt: skip
CUDA = [
    Layer(64, 3, 64, 224, 7, 2), Layer(64, 64, 64, 56, 1), Layer(64, 64, 64, 56, 3), Layer(64, 256, 64, 56, 1),
    Layer(64, 128, 128, 56, 3, 2), Layer(64, 128, 128, 28, 3), Layer(64, 512, 128, 28, 1), Layer(64, 256, 256, 14, 3),
    Layer(64, 1024, 256, 14, 1), Layer(64, 512, 512, 7, 3), Layer(64, 512, 2048, 7, 1), Layer(8, 64, 64, 56, 3),
    Layer(256, 256, 1024, 14, 1), Layer(32, 64, 64, 224, 3), Layer(32, 512, 512, 28, 3), Layer(128, 64, 192, 27, 5),
    Layer(64, 32, 32, 112, 3, 1, 32), Layer(64, 240, 240, 28, 3, 1, 240), Layer(64, 672, 672, 14, 5, 1, 672),
    Layer(32, 96, 96, 56, 7, 1, 96), Layer(64, 128, 128, 56, 3, 1, 32), Layer(64, 512, 512, 14, 3, 1, 32),
    Layer(32, 3, 768, 224, 16, 16), Layer(4, 32, 64, 64, 3, 1, 1, 3), Layer(2, 128, 128, 32, 3, 1, 1, 3),
]  # fmt: skip
FEW_CHANNELS = 4
"""Images that come in need no gradient."""


def cases(scope: Scope) -> Iterator[Case]:
    layouts = ("first",) if scope.quick else ("first", "last")
    for layout, precision, layer in product(layouts, scope.precisions, scope.choose(FEW, CPU, CUDA)):
        for part in PARTS:
            if part != "input_gradient" or layer.ins > FEW_CHANNELS:
                yield _convolution(scope, layer, part, precision, layout)


def _convolution(scope: Scope, layer: Layer, part: str, precision: str, layout: str) -> Case:
    padding = layer.window // 2 if layer.stride < layer.window else 0
    space = layer.space

    def make() -> Callable[[], Any]:
        order = torch.contiguous_format
        if layout == "last":
            order = torch.channels_last if space == 2 else torch.channels_last_3d
        image = (layer.samples, layer.ins, *[layer.image] * space)
        weight = (layer.outs, layer.ins // layer.groups, *[layer.window] * space)
        x, w = (scope.random(*shape, precision=precision).to(memory_format=order) for shape in (image, weight))
        how = ([layer.stride] * space, [padding] * space, [1] * space, False, [0] * space, layer.groups)
        if part == "forward":
            return lambda: torch.ops.aten.convolution(x, w, None, *how)
        y = torch.ops.aten.convolution(x, w, None, *how)
        wanted = [part == "input_gradient", part == "weight_gradient", False]
        return lambda: torch.ops.aten.convolution_backward(y, x, w, None, *how, wanted)

    side = extent(layer.image, layer.window, layer.stride, padding)
    groups = layer.groups
    sizes = {"sample": layer.samples, "group": groups, "in": layer.ins // groups, "out": layer.outs // groups}
    sizes |= dict.fromkeys(("depth", "height", "width")[-space:], side)
    window, stride, padded = ((size,) * space for size in (layer.window, layer.stride, padding))
    operator = Convolution(window, stride, padded, (1,) * space)
    return kernel(operator, sizes, "x w y", (part,), precision, make, layout=layout, direct=True)
