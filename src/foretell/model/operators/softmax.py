"""Softmax and log-softmax over one dim."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, ClassVar

from foretell.model.operator import Need, Operator, OperatorPart, Sizes, Widths
from foretell.units import ceil_log2

if TYPE_CHECKING:
    from foretell.model.build import Builder, Value


class Softmax(Operator, frozen=True, tag="softmax"):
    """y[row, class] = exp(x) / sum over class of exp(x), or its logarithm."""

    log: bool = False

    spans: ClassVar[dict[str, tuple[str, ...]]] = {"x": ("row", "class"), "y": ("row", "class")}

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        x = self.elements("x", n)
        return OperatorPart(0, 5 * x, x * width["x"], x * width["y"], 1, 1, x, 2 * ceil_log2(n["class"]))

    def input_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        x = self.elements("x", n)
        return OperatorPart(0, 4 * x, 2 * x * width["y"], x * width["x"], 1, 1, x, ceil_log2(n["class"]))

    def keeps(self, needs: Collection[str]) -> tuple[str, ...]:
        return ("y",)

    def statistics(self, loop: str) -> tuple[tuple[str, tuple[str, ...], int], ...]:
        maximum, total, product = ("forward", ("row",), 1), ("forward", ("row",), 1), ("backward", ("row",), 1)
        return (maximum, total, product) if loop == "class" else ()

    def need(self, loop: str) -> Need:
        return Need.STATISTICS if loop == "class" else Need.NOTHING


def softmax(g: Builder, x: Value, *, log: bool = False) -> Value:
    """Softmax over the last dim."""
    return g.apply(Softmax(log), {"row": x.dims[:-1], "class": x.dims[-1:]}, {"x": x}, x.dims)
