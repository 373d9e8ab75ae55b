"""Matrix products: dense layers, products of two activations, batched products."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, ClassVar, Final

from foretell.model.dims import Dims
from foretell.model.operator import Operator, OperatorPart, Sizes, Widths
from foretell.units import Quantity, at_least, ceil_div, ceil_log2

if TYPE_CHECKING:
    from foretell.model.build import Builder, Value


IN_PIECES: Final = "matmul_in_pieces"


class Matmul(Operator, frozen=True, tag="matmul"):
    """y[batch, row, out] = sum over in of x[batch, row, in] w[batch, in, out], plus b[out]."""

    spans: ClassVar[dict[str, tuple[str, ...]]] = {
        "x": ("batch", "row", "in"),
        "w": ("batch", "in", "out"),
        "b": ("out",),
        "y": ("batch", "row", "out"),
    }

    stored: ClassVar[dict[str, tuple[str, ...]]] = {"w": ("batch", "out", "in")}  # as PyTorch keeps a layer's weight

    pieces: bool = False  # whether rows are multiplied a piece at a time, with one piece of y in memory
    twice: bool = False  # whether the backward pass makes each piece again

    @property
    def priced_as(self) -> str:
        return IN_PIECES if self.pieces else super().priced_as

    def _flops(self, n: Sizes) -> OperatorPart:
        products = n["batch"] * n["row"] * n["in"] * n["out"]
        return OperatorPart(matrix=2 * products, launches=1, fused=1, work=products)

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        bias = self.elements("y", n) if "b" in width else 0
        traffic = OperatorPart(
            vector=bias,
            read=self.bytes_of(("x", "w", "b"), n, width),
            written=self.bytes_of(("y",), n, width),
            depth=ceil_log2(n["in"]),
        )
        return self._flops(n) + traffic

    def input_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        traffic = OperatorPart(
            read=self.bytes_of(("y", "w"), n, width),
            written=self.bytes_of(("x",), n, width),
            depth=ceil_log2(n["out"]),
        )
        return self._flops(n) + traffic

    def weight_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        bias = self.elements("y", n) if "b" in width else 0
        traffic = OperatorPart(
            vector=bias,
            read=self.bytes_of(("y", "x"), n, width) + bias * width["y"],
            written=self.bytes_of(("w", "b"), n, width),
            launches=1 if "b" in width else 0,  # the bias gradient is a reduction of its own
            depth=ceil_log2(n["row"]),
        )
        return self._flops(n) + traffic

    def keeps(self, needs: Collection[str]) -> tuple[str, ...]:
        kept = [other for need, other in (("w", "x"), ("x", "w")) if need in needs]
        return tuple(kept)


def piece_rows(rows: Quantity, ins: Quantity, outs: Quantity) -> Quantity:
    """Rows of a piece: a power of two, of which as many outputs as all rows have inputs, or up to twice as many.

    Liger-Kernel (00eba63), src/liger_kernel/ops/fused_linear_cross_entropy.py: chunk_size.
    """
    found = 2 ** ceil_log2(ceil_div(rows, ceil_div(outs, ins)))
    return -at_least(-found, -rows)


def linear(
    g: Builder,
    x: Value,
    columns: Dims,
    *,
    contract: int = 1,
    bias: bool = True,
    weight: Value | None = None,
) -> Value:
    """A dense layer over the last `contract` dims of x; `weight` shares another layer's."""
    rows, inner = x.dims[: len(x.dims) - contract], x.dims[len(x.dims) - contract :]
    inputs = {"x": x, "w": weight or g.parameter("weight", columns + inner)}
    if bias:
        inputs["b"] = g.parameter("bias", columns)
    loops = {"batch": (), "row": rows, "in": inner, "out": columns}
    return g.apply(Matmul(), loops, inputs, rows + columns)
