"""Mixtures of experts: routing tokens, and the grouped matrix product of the experts.

Tokens are assumed to spread evenly; an imbalance is a factor that the oracle puts on top.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, ClassVar

from foretell.model.dims import Dim, Dims
from foretell.model.operator import Need, Operator, Part, Sizes, Widths
from foretell.units import ceil_log2

if TYPE_CHECKING:
    from foretell.model.build import Builder, Value


class GroupedMatmul(Operator, frozen=True, tag="grouped_matmul"):
    """y[row, out] = sum over in of x[row, in] w[expert of row, in, out]: every row one expert."""

    spans: ClassVar[dict[str, tuple[str, ...]]] = {
        "x": ("row", "in"),
        "w": ("expert", "in", "out"),
        "y": ("row", "out"),
    }

    def _part(self, n: Sizes, width: Widths, read: tuple[str, ...], written: str, over: str) -> Part:
        products = n["row"] * n["in"] * n["out"]
        traffic = self.bytes_of(read, n, width), self.bytes_of((written,), n, width)
        return Part(2 * products, 0, *traffic, 1, 1, products, ceil_log2(n[over]))

    def forward(self, n: Sizes, width: Widths) -> Part:
        return self._part(n, width, ("x", "w"), "y", "in")

    def input_gradient(self, n: Sizes, width: Widths) -> Part:
        return self._part(n, width, ("y", "w"), "x", "out")

    def weight_gradient(self, n: Sizes, width: Widths) -> Part:
        return self._part(n, width, ("x", "y"), "w", "row")

    def keeps(self, needs: Collection[str]) -> tuple[str, ...]:
        return tuple(other for need, other in (("w", "x"), ("x", "w")) if need in needs)

    def need(self, loop: str) -> Need:
        return {"expert": Need.EXCHANGE, "in": Need.SUM}.get(loop, Need.NOTHING)


class Gather(Operator, frozen=True, tag="gather"):
    """Rows of x in another order or number: y[i] = x[index[i]]; the gradient adds rows up."""

    spans: ClassVar[dict[str, tuple[str, ...]]] = {
        "x": ("source", "feature"),
        "index": ("row",),
        "y": ("row", "feature"),
    }

    def forward(self, n: Sizes, width: Widths) -> Part:
        y = self.elements("y", n)
        return Part(0, 0, y * width["x"] + 8 * n["row"], y * width["y"], 1, 1, y, 1)

    def input_gradient(self, n: Sizes, width: Widths) -> Part:
        y = self.elements("y", n)
        return Part(0, y, 2 * y * width["y"] + 8 * n["row"], y * width["x"] * 2, 2, 2, y, 1)

    def keeps(self, needs: Collection[str]) -> tuple[str, ...]:
        return ("index",)


class TopK(Operator, frozen=True, tag="top_k"):
    """The k largest of the classes of each row, and where they are."""

    spans: ClassVar[dict[str, tuple[str, ...]]] = {"x": ("row", "class"), "y": ("row", "chosen")}

    def forward(self, n: Sizes, width: Widths) -> Part:
        x, y = self.elements("x", n), self.elements("y", n)
        return Part(0, x, x * width["x"], y * (width["y"] + 8), 2, 2, x, ceil_log2(n["class"]))

    def keeps(self, needs: Collection[str]) -> tuple[str, ...]:
        return ("places",)

    def extras(self) -> dict[str, tuple[tuple[str, ...], str]]:
        return {"places": (("row", "chosen"), "int64")}

    def need(self, loop: str) -> Need:
        return Need.STATISTICS if loop == "class" else Need.NOTHING


def grouped_linear(g: Builder, x: Value, experts: int, columns: Dims) -> Value:
    """Each row of x through the dense layer of its own expert (rows are sorted by expert)."""
    *rows, inner = x.dims
    weight = g.parameter("weight", (Dim("expert", experts), inner, *columns))
    loops = {"expert": weight.dims[:1], "row": tuple(rows), "in": (inner,), "out": columns}
    return g.apply(GroupedMatmul(), loops, {"x": x, "w": weight}, (*rows, *columns))


def gather(g: Builder, x: Value, index: Value, rows: Dims) -> Value:
    """Rows of x[..., feature] picked by an index over `rows`."""
    *source, feature = x.dims
    loops = {"source": tuple(source), "row": rows, "feature": (feature,)}
    return g.apply(Gather(), loops, {"x": x, "index": index}, (*rows, feature))


def top_k(g: Builder, x: Value, chosen: int) -> Value:
    """The `chosen` largest entries of the last dim."""
    *rows, classes = x.dims
    pick = (Dim("chosen", chosen),)
    loops = {"row": tuple(rows), "class": (classes,), "chosen": pick}
    return g.apply(TopK(), loops, {"x": x}, (*rows, *pick))
