"""Four ways to compute a convolution, by work and depth: direct, im2col, FFT, Winograd.

The formulas are those of Ben-Nun and Hoefler, Table 6. Its Winograd row counts the transforms of one
tile of one channel, and a tile's products as one; `winograd_whole` counts all of them.
"""

from __future__ import annotations

import math

from foretell.model.operator import Sizes
from foretell.model.operators.convolution import Convolution
from foretell.units import Quantity, ceil_div, ceil_log2


def methods(
    operator: Convolution,
    n: Sizes,
    tile: int = 4,
    *,
    lavin_gray: bool = False,
    whole: bool = False,
    constant: int = 1,
) -> dict[str, tuple[Quantity, Quantity]]:
    """Work and depth of each way to compute this convolution (Ben-Nun, Hoefler, Table 6).

    The table is for two spatial dims, one group and unit strides; where it says nothing the way is
    left out. `constant` is the FFT's hidden c, and its transforms cover the input. See `winograd`
    for `tile` and `lavin_gray`; `whole` takes `winograd_whole` instead.
    """
    direct = operator.products(n), operator.tree_depth(n)
    found = {"direct": direct, "im2col": direct}
    unit = operator.stride == (1, 1) and operator.dilation == (1, 1)
    if operator.transposed or not unit or n["group"] != 1:
        return found
    samples, inner, outer = n["sample"], n["in"], n["out"]
    plane = operator.elements("x", n) // (samples * inner)
    transforms = outer * inner + samples * inner + samples * outer
    work = constant * _n_log_n(plane) * transforms + plane * samples * inner * outer
    found["fft"] = work, 2 * ceil_log2(plane) + ceil_log2(inner)
    r = operator.kernel[0]
    if operator.kernel == (r, r) and r > 1 and (lavin_gray or whole or tile >= r):
        tiles = samples * ceil_div(n["height"], tile) * ceil_div(n["width"], tile)
        printed = winograd(inner, outer, tiles, tile, r, lavin_gray=lavin_gray)
        found["winograd"] = winograd_whole(inner, outer, tiles, tile, r) if whole else printed
    return found


def winograd(
    inner: Quantity, outer: Quantity, tiles: Quantity, m: int, r: int, *, lavin_gray: bool = False
) -> tuple[Quantity, Quantity]:
    """Work and depth of Winograd's method, F(m x m, r x r), by the formula of Table 6.

    The table prints a = m - r + 1. Lavin and Gray's tile is m + r - 1, the side of the input that m
    outputs need; only with it are the terms the products of the three transforms, so the minus is
    most likely a slip. Either way the formula counts the transforms of one tile of one channel, and
    a tile's a * a products as one.
    """
    a = m + r - 1 if lavin_gray else m - r + 1
    transforms = a * (r * r + a * r + 2 * a * a + a * m + m * m)
    return transforms + outer * inner * tiles, 2 * ceil_log2(r) + 4 * ceil_log2(a) + ceil_log2(inner)


def winograd_whole(inner: Quantity, outer: Quantity, tiles: Quantity, m: int, r: int) -> tuple[Quantity, Quantity]:
    """Work and depth with every transform and product counted, and Lavin and Gray's tile a = m + r - 1.

    Filters are transformed once per pair of channels, inputs per tile and input channel, outputs per
    tile and output channel; every tile has a * a products per pair of channels.
    """
    a = m + r - 1
    filters = inner * outer * (a * r * r + a * a * r)
    tiles_in, tiles_out = tiles * inner * 2 * a**3, tiles * outer * (a * a * m + a * m * m)
    depth = winograd(inner, outer, tiles, m, r, lavin_gray=True)[1]
    return filters + tiles_in + tiles_out + tiles * inner * outer * a * a, depth


def _n_log_n(n: Quantity) -> Quantity:
    """n * log2(n), rounded up to a whole number."""
    if isinstance(n, int):
        return math.ceil(n * math.log2(n)) if n > 1 else 0
    import numpy

    return numpy.ceil(n * numpy.log2(n)).astype(numpy.int64)
