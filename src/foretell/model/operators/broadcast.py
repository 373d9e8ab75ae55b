"""Functions of a tensor and a smaller one that repeats: gates per channel, layer scale, places, slopes of a PReLU."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, ClassVar

from foretell.errors import BadInput
from foretell.model.dims import Dims
from foretell.model.operator import NOTHING, Operator, OperatorPart, Sizes, Widths
from foretell.units import ceil_log2

if TYPE_CHECKING:
    from foretell.model.build import Builder, Value

FUNCTIONS = ("add", "multiply", "prelu")
"""A prelu is x where that is positive, and x times the small operand where it is not."""


class Broadcast(Operator, frozen=True, tag="broadcast"):
    """y[item, repeat] = x[item, repeat] f z[item]; a z that is a weight is called w."""

    function: str

    spans: ClassVar[dict[str, tuple[str, ...]]] = {
        "x": ("item", "repeat"),
        "z": ("item",),
        "w": ("item",),
        "y": ("item", "repeat"),
    }

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        y = self.elements("y", n)
        return OperatorPart(0, y, self.bytes_of(("x", "z", "w"), n, width), y * width["y"], 1, 0, y, 1)

    def input_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        of_small = self._summed(n, width) if "z" in width else NOTHING
        if self.function == "add":
            return of_small  # x's gradient is y's, unchanged
        y = self.elements("y", n)
        known = ("x", "z", "w") if self.function == "prelu" else ("z", "w")
        read = y * width["y"] + self.bytes_of(known, n, width)
        return OperatorPart(0, y, read, self.bytes_of(("x",), n, width), 1, 0, y, 1) + of_small

    def weight_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        return self._summed(n, width)

    def _summed(self, n: Sizes, width: Widths) -> OperatorPart:
        """The small operand's gradient: y's gradient (times x) summed over what repeats."""
        y = self.elements("y", n)
        traffic = y * width["y"]
        written = self.bytes_of(("z", "w"), n, width)
        total = OperatorPart(0, y, traffic, written, 1, 1, y, ceil_log2(n["repeat"]))
        if self.function == "add":
            return total
        return total + OperatorPart(0, y, traffic + self.bytes_of(("x",), n, width), traffic, 1, 0, y, 1)

    def keeps(self, needs: Collection[str]) -> tuple[str, ...]:
        if self.function == "add":
            return ()
        if self.function == "prelu":
            return ("x", "z", "w")
        other = {"x": ("z", "w"), "z": ("x",), "w": ("x",)}
        return tuple(kept for need in needs for kept in other[need])


def broadcast(g: Builder, x: Value, z: Value, function: str, *, weight: bool = False) -> Value:
    """x combined with z, whose dims of more than one element are dims of x; it repeats over the others."""
    if function not in FUNCTIONS:
        raise BadInput(f"no broadcast function is called {function!r}", fix=", ".join(FUNCTIONS))
    item: Dims = tuple(dim for dim in x.dims if dim in z.dims)
    repeat: Dims = tuple(dim for dim in x.dims if dim not in z.dims)
    return g.apply(Broadcast(function), {"item": item, "repeat": repeat}, {"x": x, "w" if weight else "z": z}, x.dims)
