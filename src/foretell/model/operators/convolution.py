"""Convolution in one, two or three spatial dims: strided, dilated, grouped, transposed."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, ClassVar

from foretell.errors import BadInput
from foretell.model.dims import Dim, Dims
from foretell.model.operator import Need, Operator, OperatorPart, Sizes, Widths
from foretell.units import Quantity, at_least, ceil_div, ceil_log2, product

if TYPE_CHECKING:
    from foretell.model.build import Builder, Value

SPACE = ("depth", "height", "width")
"""Spatial loops, outermost first; a 2-D convolution has the last two."""


class Convolution(Operator, frozen=True, tag="convolution"):
    """y[sample, group, out, space] = sum over in, kernel of x[sample, group, in, ...] w.

    The spatial loops count output positions (input positions for a transposed one, which is
    where its products are).
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool = False

    spans: ClassVar[dict[str, tuple[str, ...]]] = {
        "x": ("sample", "group", "in", "depth", "height", "width"),
        "w": ("group", "in", "out"),
        "b": ("group", "out"),
        "y": ("sample", "group", "out", "depth", "height", "width"),
    }

    def _space(self, n: Sizes) -> list[Quantity]:
        return [n[loop] for loop in SPACE if loop in n]

    def elements(self, operand: str, n: Sizes) -> Quantity:
        channels = n["group"] * n["in" if operand == "x" else "out"]
        if operand == "b":
            return channels
        if operand == "w":
            return n["group"] * n["in"] * n["out"] * product(self.kernel)
        near = self._space(n)
        far = [
            at_least((size - 1) * stride + dilation * (kernel - 1) + 1 - 2 * padding, 1)
            for size, stride, kernel, dilation, padding in zip(
                near, self.stride, self.kernel, self.dilation, self.padding, strict=True
            )
        ]
        return n["sample"] * channels * product(far if (operand == "x") != self.transposed else near)

    def products(self, n: Sizes) -> Quantity:
        """Multiply-adds of one part."""
        taps = n["group"] * n["in"] * n["out"] * product(self.kernel)
        return n["sample"] * taps * product(self._space(n))

    def tree_depth(self, n: Sizes) -> Quantity:
        """A reduction tree for each factor of the sum: Table 4 has this for all three parts, Table 6 exactly."""
        return ceil_log2(n["in"]) + sum(ceil_log2(k) for k in self.kernel)

    def _part(self, n: Sizes, read: Quantity, written: Quantity) -> OperatorPart:
        products = self.products(n)
        return OperatorPart(2 * products, 0, read, written, 1, 1, products, self.tree_depth(n))

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        y = self.bytes_of(("y",), n, width)
        part = self._part(n, self.bytes_of(("x", "w", "b"), n, width), y)
        if "b" in width:  # cuDNN's kernel has no bias: another one adds it
            part = part + OperatorPart(vector=self.elements("y", n), read=y, written=y, launches=1)
        return part

    def input_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        return self._part(n, self.bytes_of(("y", "w"), n, width), self.bytes_of(("x",), n, width))

    def weight_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        part = self._part(n, self.bytes_of(("y", "x"), n, width), self.bytes_of(("w", "b"), n, width))
        if "b" in width:
            part = part + OperatorPart(vector=self.elements("y", n), read=self.bytes_of(("y",), n, width), launches=1)
        return part

    def keeps(self, needs: Collection[str]) -> tuple[str, ...]:
        kept = [other for need, other in (("w", "x"), ("x", "w")) if need in needs]
        return tuple(kept)

    def need(self, loop: str) -> Need:
        if loop in SPACE:
            return Need.HALO if any(self.halo(loop)) else Need.NOTHING
        return Need.SUM if loop == "in" else Need.NOTHING

    def halo(self, loop: str) -> tuple[int, int]:
        """Of a transposed one: output positions that two ranks both add to."""
        if loop not in SPACE:
            return 0, 0
        at = SPACE.index(loop) - len(SPACE)
        overlap = max(0, self.dilation[at] * (self.kernel[at] - 1) + 1 - self.stride[at])
        before = min(self.padding[at], overlap)
        return before, overlap - before


def extent(size: int, kernel: int, stride: int, padding: int, dilation: int = 1, ceil: bool = False) -> int:
    """Output positions of a sliding window along one dim."""
    free = size + 2 * padding - dilation * (kernel - 1) - 1
    if free < 0:
        what = f"a window of {dilation * (kernel - 1) + 1} does not fit {size} positions with padding {padding}"
        raise BadInput(what, fix="a larger image, or fewer layers that shrink it")
    if not ceil:
        return free // stride + 1
    steps = ceil_div(free, stride)
    # the last window must start inside the input or its left padding (PyTorch's rule)
    return steps + 1 if steps * stride < size + padding else steps


def per_dim(value: int | tuple[int, ...], count: int) -> tuple[int, ...]:
    """One number for every spatial dim, or one each."""
    return (value,) * count if isinstance(value, int) else value


def convolution(
    g: Builder,
    x: Value,
    filters: int,
    kernel: int | tuple[int, ...],
    *,
    stride: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] = 0,
    dilation: int | tuple[int, ...] = 1,
    groups: int = 1,
    bias: bool = True,
    transposed: bool = False,
    output_padding: int = 0,
) -> Value:
    """A convolution of x[sample, channel, space...]."""
    sample, channel, *space = x.dims
    count = len(space)
    if channel.size % groups or filters % groups:
        raise BadInput(f"{groups} groups do not divide {channel.size} channels into {filters} filters")
    k, s, p, d = (per_dim(value, count) for value in (kernel, stride, padding, dilation))
    if transposed:
        sizes = [
            (dim.size - 1) * s[i] - 2 * p[i] + d[i] * (k[i] - 1) + 1 + output_padding for i, dim in enumerate(space)
        ]
    else:
        sizes = [extent(dim.size, k[i], s[i], p[i], d[i]) for i, dim in enumerate(space)]
    out_space = tuple(Dim(dim.name, size) for dim, size in zip(space, sizes, strict=True))
    inner, outer = channel.size // groups, filters // groups
    taps = tuple(Dim(f"kernel_{dim.name}", size) for dim, size in zip(space, k, strict=True))
    first, second = (channel.size, outer) if transposed else (filters, inner)
    inputs = {"x": x, "w": g.parameter("weight", (Dim("filter", first), Dim("tap", second), *taps))}
    if bias:
        inputs["b"] = g.parameter("bias", (Dim("channel", filters),))
    loops: dict[str, Dims] = {
        "sample": (sample,),
        "group": (Dim("group", groups),),
        "in": (Dim("channel", inner),),
        "out": (Dim("channel", outer),),
    }
    loops |= {dim.name: (dim,) for dim in (space if transposed else out_space)}
    shape = (sample, Dim("channel", filters), *out_space)
    return g.apply(Convolution(k, s, p, d, transposed), loops, inputs, shape)
