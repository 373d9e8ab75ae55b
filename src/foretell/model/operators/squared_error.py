"""The mean squared error: the loss of models that predict values."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, ClassVar

from foretell.model.operator import Need, Operator, OperatorPart, Sizes, Widths
from foretell.units import ceil_log2

if TYPE_CHECKING:
    from foretell.model.build import Builder, Value


class SquaredError(Operator, frozen=True, tag="squared_error"):
    """y = mean over item of (x - t)^2."""

    spans: ClassVar[dict[str, tuple[str, ...]]] = {"x": ("item",), "t": ("item",), "y": ()}

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        x = n["item"]
        squares = x * width["x"]  # squares are written, then averaged
        read = self.bytes_of(("x", "t"), n, width) + squares
        return OperatorPart(0, 3 * x, read, squares + width["y"], 2, 1, x, 1 + ceil_log2(x))

    def input_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        x = n["item"]
        return OperatorPart(0, 3 * x, self.bytes_of(("x", "t"), n, width), x * width["x"], 1, 1, x, 1)

    def keeps(self, needs: Collection[str]) -> tuple[str, ...]:
        return ("x", "t")

    def need(self, loop: str) -> Need:
        return Need.SUM


def squared_error(g: Builder, x: Value, targets: Value) -> Value:
    """The loss of the values x against targets of the same dims."""
    return g.apply(SquaredError(), {"item": x.dims}, {"x": x, "t": targets}, ())
