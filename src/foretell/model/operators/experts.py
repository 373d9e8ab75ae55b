"""Mixtures of experts: routing tokens, and the grouped matrix product of the experts.

Every token has `chosen` rows, one for each expert it goes to: they are sorted by expert, gathered,
multiplied group by group, and added up again. The number of rows is always the same; how they
spread is not known here. They are assumed to spread evenly, an imbalance is a factor on top.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, ClassVar

from foretell.model.dims import Dim, Dims
from foretell.model.operator import Need, Operator, OperatorPart, Sizes, Widths
from foretell.units import ceil_log2

if TYPE_CHECKING:
    from foretell.model.build import Builder, Value


class GroupedMatmul(Operator, frozen=True, tag="grouped_matmul"):
    """y[row, out] = sum over in of x[row, in] w[expert of row, in, out]: every row one expert."""

    spans: ClassVar[dict[str, tuple[str, ...]]] = {
        "x": ("row", "in"),
        "w": ("expert", "in", "out"),
        "offsets": ("expert",),
        "y": ("row", "out"),
    }

    def _part(self, n: Sizes, width: Widths, read: tuple[str, ...], written: str, over: str) -> OperatorPart:
        products = n["row"] * n["in"] * n["out"]
        traffic = self.bytes_of(read, n, width), self.bytes_of((written,), n, width)
        return OperatorPart(2 * products, 0, *traffic, 1, 1, products, ceil_log2(n[over]))

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        return self._part(n, width, ("x", "w", "offsets"), "y", "in")

    def input_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        return self._part(n, width, ("y", "w"), "x", "out")

    def weight_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        return self._part(n, width, ("x", "y"), "w", "row")

    def keeps(self, needs: Collection[str]) -> tuple[str, ...]:
        return (*(other for need, other in (("w", "x"), ("x", "w")) if need in needs), "offsets")

    def need(self, loop: str) -> Need:
        return {"expert": Need.EXCHANGE, "in": Need.SUM}.get(loop, Need.NOTHING)


class Gather(Operator, frozen=True, tag="gather"):
    """Rows of x in another order or number: y[i] = x[index[i]]; the gradient adds rows up.

    `torch.gather`, unlike `index_select`, keeps x too.
    """

    whole: bool = False

    spans: ClassVar[dict[str, tuple[str, ...]]] = {
        "x": ("source", "feature"),
        "index": ("row",),
        "y": ("row", "feature"),
    }
    together: ClassVar[tuple[tuple[str, str], ...]] = (("source", "row"),)

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        y = self.elements("y", n)
        return OperatorPart(0, 0, y * width["x"] + 8 * n["row"], y * width["y"], 1, 1, y, 1)

    def input_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        y = self.elements("y", n)
        return OperatorPart(0, y, 2 * y * width["y"] + 8 * n["row"], y * width["x"] * 2, 2, 2, y, 1)

    def keeps(self, needs: Collection[str]) -> tuple[str, ...]:
        return ("x", "index") if self.whole else ("index",)


class ScatterAdd(Operator, frozen=True, tag="scatter_add"):
    """Rows of x added up where an index says: y[index[i]] += x[i]; the gradient gathers rows."""

    spans: ClassVar[dict[str, tuple[str, ...]]] = {
        "x": ("row", "feature"),
        "index": ("row",),
        "y": ("target", "feature"),
    }
    together: ClassVar[tuple[tuple[str, str], ...]] = (("row", "target"),)

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        x, y = self.elements("x", n), self.elements("y", n)  # zeros first, then read, add and write
        read = x * (width["x"] + width["y"]) + 8 * n["row"]
        return OperatorPart(0, x, read, (x + y) * width["y"], 2, 2, x, ceil_log2(n["row"]))

    def input_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        x = self.elements("x", n)
        return OperatorPart(0, 0, x * width["y"] + 8 * n["row"], x * width["x"], 1, 1, x, 1)

    def keeps(self, needs: Collection[str]) -> tuple[str, ...]:
        return ("index",)

    def need(self, loop: str) -> Need:
        return {"row": Need.SUM, "target": Need.EXCHANGE}.get(loop, Need.NOTHING)


class Put(Operator, frozen=True, tag="put"):
    """x at the places that an index says: y[kept, index[kept, row]] = x[kept, row]; no place is written twice."""

    spans: ClassVar[dict[str, tuple[str, ...]]] = {
        "x": ("kept", "row"),
        "index": ("kept", "row"),
        "y": ("kept", "target"),
    }
    together: ClassVar[tuple[tuple[str, str], ...]] = (("row", "target"),)

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        x = self.elements("x", n)  # what is there before, then its own
        return OperatorPart(0, 0, x * (width.get("x", 0) + 8), self.elements("y", n) * width["y"], 1, 1, x, 1)

    def input_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        x = self.elements("x", n)
        return OperatorPart(0, 0, x * (width["y"] + 8), x * width["x"], 1, 1, x, 1)

    def keeps(self, needs: Collection[str]) -> tuple[str, ...]:
        return ("index",)

    def need(self, loop: str) -> Need:
        return {"row": Need.SUM, "target": Need.EXCHANGE}.get(loop, Need.NOTHING)


class Sort(Operator, frozen=True, tag="sort"):
    """Where each row goes when rows are sorted by a small whole number, such as their expert."""

    spans: ClassVar[dict[str, tuple[str, ...]]] = {"x": ("row",), "y": ("row",)}

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        rows = n["row"]  # a radix sort: a few passes over keys and places
        traffic = 4 * rows * (width["x"] + width["y"])
        return OperatorPart(0, 0, traffic, traffic, 4, 4, rows * ceil_log2(rows), ceil_log2(rows))

    def need(self, loop: str) -> Need:
        return Need.NOTHING  # each rank sorts the rows it has, by the expert they go to


class Bounds(Operator, frozen=True, tag="bounds"):
    """y[expert]: the first row after those of this expert, found in sorted rows."""

    spans: ClassVar[dict[str, tuple[str, ...]]] = {"x": ("row",), "y": ("expert",)}

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        work = n["expert"] * ceil_log2(n["row"])
        return OperatorPart(0, 0, work * width["x"], n["expert"] * width["y"], 2, 2, work, ceil_log2(n["row"]))

    def need(self, loop: str) -> Need:
        return Need.NOTHING  # each rank counts the rows it has


class Histogram(Operator, frozen=True, tag="histogram"):
    """y[class]: how many elements of x are of each class."""

    spans: ClassVar[dict[str, tuple[str, ...]]] = {"x": ("row",), "y": ("class",)}

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        rows, classes = n["row"], n["class"]  # zeros first
        depth = ceil_log2(rows)
        return OperatorPart(0, rows, rows * width["x"], 2 * classes * width["y"], 2, 2, rows, depth)

    def need(self, loop: str) -> Need:
        return Need.NOTHING  # each rank counts the rows it has


class TopK(Operator, frozen=True, tag="top_k"):
    """The k largest of the classes of each row, and where they are."""

    spans: ClassVar[dict[str, tuple[str, ...]]] = {"x": ("row", "class"), "y": ("row", "chosen")}

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        x, y = self.elements("x", n), self.elements("y", n)
        return OperatorPart(0, x, x * width["x"], y * (width["y"] + 8), 2, 2, x, ceil_log2(n["class"]))

    def keeps(self, needs: Collection[str]) -> tuple[str, ...]:
        return ("places",)

    def extras(self) -> dict[str, tuple[tuple[str, ...], str]]:
        return {"places": (("row", "chosen"), "int64")}

    def need(self, loop: str) -> Need:
        return {"class": Need.GATHER, "chosen": Need.WHOLE}.get(loop, Need.NOTHING)


def grouped_linear(g: Builder, x: Value, experts: int, columns: Dims, offsets: Value | None = None) -> Value:
    """Each row of x through the dense layer of its own expert; rows are sorted, `offsets` end the groups."""
    *rows, inner = x.dims
    weight = g.parameter("weight", (Dim("expert", experts), inner, *columns))
    loops = {"expert": weight.dims[:1], "row": tuple(rows), "in": (inner,), "out": columns}
    inputs = {"x": x, "w": weight, **({"offsets": offsets} if offsets else {})}
    return g.apply(GroupedMatmul(), loops, inputs, (*rows, *columns))


def gather(g: Builder, x: Value, index: Value, rows: Dims, *, features: int = 1, whole: bool = False) -> Value:
    """Rows of x picked by an index over `rows`; a row is the last `features` dims of x."""
    source, feature = x.dims[: len(x.dims) - features], x.dims[len(x.dims) - features :]
    loops = {"source": source, "row": rows, "feature": feature}
    return g.apply(Gather(whole), loops, {"x": x, "index": index}, (*rows, *feature))


def scatter_add(g: Builder, x: Value, index: Value, target: Dims) -> Value:
    """Rows of x[..., feature] added up at the places of `target` that an index says."""
    *rows, feature = x.dims
    loops = {"target": target, "row": tuple(rows), "feature": (feature,)}
    return g.apply(ScatterAdd(), loops, {"x": x, "index": index}, (*target, feature))


def top_k(g: Builder, x: Value, chosen: int, *, places: bool = False) -> Value:
    """The `chosen` largest entries of the last dim, or their places."""
    *rows, classes = x.dims
    pick = (Dim("chosen", chosen),)
    loops = {"row": tuple(rows), "class": (classes,), "chosen": pick}
    return g.apply(TopK(), loops, {"x": x}, (*rows, *pick), dtype="int64" if places else "")


def sort(g: Builder, x: Value) -> Value:
    """The order of all elements of x from small to large."""
    return g.apply(Sort(), {"row": x.dims}, {"x": x}, x.dims, dtype="int64")


def sort_both(g: Builder, x: Value) -> tuple[Value, Value]:
    """The order of all elements of x from small to large, and the elements in that order."""
    order = g.apply(Sort(), {"row": x.dims}, {"x": x}, x.dims, dtype="int64", also=(x.dims,))
    return order, g.value(order.tensor + 1, order)


def bounds(g: Builder, x: Value, experts: int) -> Value:
    """The ends of the groups of equal elements in x, when sorted."""
    expert = (Dim("expert", experts),)
    return g.apply(Bounds(), {"row": x.dims, "expert": expert}, {"x": x}, expert, dtype="int32")
