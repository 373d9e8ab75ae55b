"""Pooling: maxima and means over sliding windows, and to a given output size."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, ClassVar

from foretell.model.dims import Dim
from foretell.model.operator import Need, Operator, OperatorPart, Sizes, Widths
from foretell.model.operators.convolution import SPACE, extent, per_dim
from foretell.model.operators.layout import view
from foretell.model.operators.reduction import reduce
from foretell.units import Quantity, ceil_log2, product

if TYPE_CHECKING:
    from foretell.model.build import Builder, Value


class Pool(Operator, frozen=True, tag="pool"):
    """y[sample, channel, space] = maximum or mean over a window of x. Loops count outputs."""

    function: str  # max, average
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    adaptive: bool = False

    spans: ClassVar[dict[str, tuple[str, ...]]] = {
        "x": ("sample", "channel", *SPACE),
        "y": ("sample", "channel", *SPACE),
    }

    def elements(self, operand: str, n: Sizes) -> Quantity:
        near = product(n[loop] for loop in SPACE if loop in n)
        if operand == "y":
            return n["sample"] * n["channel"] * near
        return n["sample"] * n["channel"] * near * product(self.stride)

    def _index(self, n: Sizes) -> Quantity:
        return 8 * self.elements("y", n) if self.function == "max" else 0  # PyTorch keeps int64

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        y = self.elements("y", n)
        window = product(self.kernel)
        written = y * width["y"] + self._index(n)
        depth = sum(ceil_log2(k) for k in self.kernel)
        return OperatorPart(0, y * window, self.bytes_of(("x",), n, width), written, 1, 1, y * window, depth)

    def input_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        y = self.elements("y", n)
        read = y * width["y"] + self._index(n)
        launches = 2 if self.function == "max" else 1  # the maximum's gradient is added into zeros
        return OperatorPart(0, y * product(self.kernel), read, self.bytes_of(("x",), n, width), launches, 1, y, 1)

    def keeps(self, needs: Collection[str]) -> tuple[str, ...]:
        return ("x", "index") if self.function == "max" else ("x",)

    def extras(self) -> dict[str, tuple[tuple[str, ...], str]]:
        return {"index": (("sample", "channel", *SPACE[-len(self.kernel) :]), "int64")}

    def need(self, loop: str) -> Need:
        return Need.HALO if any(self.halo(loop)) else Need.NOTHING

    def halo(self, loop: str) -> tuple[int, int]:
        if loop not in SPACE:
            return 0, 0
        at = SPACE.index(loop) - len(SPACE)
        overlap = max(0, self.kernel[at] - self.stride[at]) + (1 if self.adaptive else 0)  # uneven windows
        return overlap // 2, overlap - overlap // 2


def pool(
    g: Builder,
    x: Value,
    function: str,
    kernel: int | tuple[int, ...],
    *,
    stride: int | tuple[int, ...] = 0,
    padding: int | tuple[int, ...] = 0,
    ceil: bool = False,
) -> Value:
    """The maximum or average over windows of x[sample, channel, space...]."""
    sample, channel, *space = x.dims
    k, p = per_dim(kernel, len(space)), per_dim(padding, len(space))
    s = per_dim(stride, len(space)) if stride else k
    out = tuple(Dim(dim.name, extent(dim.size, k[i], s[i], p[i], ceil=ceil)) for i, dim in enumerate(space))
    loops = {"sample": (sample,), "channel": (channel,), **{dim.name: (dim,) for dim in out}}
    return g.apply(Pool(function, k, s), loops, {"x": x}, (sample, channel, *out))


def adaptive_average_pool(g: Builder, x: Value, size: int) -> Value:
    """The average over equal windows that give `size` outputs in each spatial dim.

    To one output it is a plain mean, of which autograd keeps nothing.
    """
    sample, channel, *space = x.dims
    if size == 1:
        mean = reduce(g, x, tuple(dim.name for dim in space))
        return view(g, mean, (*mean.dims, *(Dim(dim.name, 1) for dim in space)))
    out = tuple(Dim(dim.name, size) for dim in space)
    window = tuple(max(1, -(-dim.size // size)) for dim in space)
    loops = {"sample": (sample,), "channel": (channel,), **{dim.name: (dim,) for dim in out}}
    return g.apply(Pool("average", window, window, adaptive=True), loops, {"x": x}, (sample, channel, *out))
