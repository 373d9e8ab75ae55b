"""Sums, means and maxima over some dims."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, ClassVar

from foretell.model.operator import Need, Operator, OperatorPart, Sizes, Widths
from foretell.units import ceil_log2

if TYPE_CHECKING:
    from foretell.model.build import Builder, Value


class Reduce(Operator, frozen=True, tag="reduce"):
    """y[kept] = sum, mean or maximum over `reduced` of x."""

    function: str = "mean"

    spans: ClassVar[dict[str, tuple[str, ...]]] = {"x": ("kept", "reduced"), "y": ("kept",)}

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        x = self.elements("x", n)
        return OperatorPart(0, x, x * width["x"], n["kept"] * width["y"], 1, 1, x, ceil_log2(n["reduced"]))

    def input_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        x = self.elements("x", n)
        return OperatorPart(0, x, n["kept"] * width["y"], x * width["x"], 1, 0, x, 1)

    def keeps(self, needs: Collection[str]) -> tuple[str, ...]:
        return ("x",) if self.function in ("maximum", "norm", "variance") else ()

    def need(self, loop: str) -> Need:
        return Need.SUM if loop == "reduced" else Need.NOTHING


def reduce(g: Builder, x: Value, over: tuple[str, ...], function: str = "mean") -> Value:
    """x reduced over the named dims."""
    kept = tuple(dim for dim in x.dims if dim.name not in over)
    reduced = tuple(dim for dim in x.dims if dim.name in over)
    return g.apply(Reduce(function), {"kept": kept, "reduced": reduced}, {"x": x}, kept)
