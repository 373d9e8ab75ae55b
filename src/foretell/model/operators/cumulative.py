"""Sums of all elements up to each, along one dim."""

from __future__ import annotations

from typing import ClassVar

from foretell.model.operator import Need, Operator, OperatorPart, Sizes, Widths
from foretell.units import ceil_log2


class Cumulative(Operator, frozen=True, tag="cumulative"):
    """y[row, place] = sum of x[row, up to place]; the gradient is the same from the other end."""

    spans: ClassVar[dict[str, tuple[str, ...]]] = {"x": ("row", "place"), "y": ("row", "place")}

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        x = self.elements("x", n)
        return OperatorPart(0, x, x * width["x"], x * width["y"], 1, 1, x, ceil_log2(n["place"]))

    def input_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        x = self.elements("x", n)  # PyTorch turns the gradient round, sums, and turns it back
        return OperatorPart(0, x, 3 * x * width["y"], 3 * x * width["x"], 3, 3, x, 2 + ceil_log2(n["place"]))

    def need(self, loop: str) -> Need:
        return Need.SEQUENTIAL if loop == "place" else Need.NOTHING
