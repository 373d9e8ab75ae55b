"""Embedding: rows of a table, gathered by index."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, ClassVar

from foretell.model.dims import Dim, Dims
from foretell.model.operator import Operator, OperatorPart, Sizes, Widths

if TYPE_CHECKING:
    from foretell.model.build import Builder, Value


class Embedding(Operator, frozen=True, tag="embedding"):
    """y[row, feature] = w[x[row], feature]; its gradient is a dense table with rows added."""

    spans: ClassVar[dict[str, tuple[str, ...]]] = {
        "x": ("row",),
        "w": ("vocab", "feature"),
        "y": ("row", "feature"),
    }

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        y = self.elements("y", n)
        return OperatorPart(0, 0, n["row"] * width["x"] + y * width["w"], y * width["y"], 1, 1, y, 1)

    def weight_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        y = self.elements("y", n)
        table = self.elements("w", n) * width["w"]
        read = n["row"] * width["x"] + y * (width["y"] + width["w"])
        launches = 3 + 25 * (n["row"] > 3072)  # many indices are sorted first (counted on an H200)
        return OperatorPart(0, y, read, table + y * width["w"], launches, launches, y, 1)

    def input_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        return OperatorPart()  # indices have no gradient

    def keeps(self, needs: Collection[str]) -> tuple[str, ...]:
        return ("x",)


def embedding(g: Builder, x: Value, rows: int, features: Dims, *, weight: Value | None = None) -> Value:
    """One row of a table of `rows` for each index in x."""
    table = weight or g.parameter("weight", (Dim("vocab", rows), *features))
    loops = {"row": x.dims, "vocab": table.dims[:1], "feature": features}
    return g.apply(Embedding(), loops, {"x": x, "w": table}, x.dims + features, dtype=table.dtype)
