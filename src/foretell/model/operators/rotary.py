"""Rotary positions: pairs of features turned by an angle that grows with the position."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, ClassVar

from foretell.errors import BadInput
from foretell.model.dims import Dims
from foretell.model.operator import Need, Operator, OperatorPart, Sizes, Widths

if TYPE_CHECKING:
    from foretell.model.build import Builder, Value


class Rotary(Operator, frozen=True, tag="rotary"):
    """y[row, position] = x turned pair by pair; its gradient is the turn back, so x is not kept."""

    partial: bool = False  # some features have no angle and are copied

    spans: ClassVar[dict[str, tuple[str, ...]]] = {
        "x": ("row", "position", "feature"),
        "cos": ("position", "angle"),
        "sin": ("position", "angle"),
        "y": ("row", "position", "feature"),
    }

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        # each half: a product, and a product added to it; the rest is copied
        x = self.elements("x", n)
        turned = 2 * n["row"] * n["position"] * n["angle"]
        tables = 2 * self.bytes_of(("cos", "sin"), n, width)
        traffic = (x + 2 * turned) * width["x"] + tables, (x + turned) * width["y"]
        return OperatorPart(0, 3 * turned, *traffic, 5 if self.partial else 4, 0, 3 * turned, 2)

    def input_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        return self.forward(n, width)

    def keeps(self, needs: Collection[str]) -> tuple[str, ...]:
        return ("cos", "sin")

    def need(self, loop: str) -> Need:
        # a feature turns with the one half a head away
        return Need.EXCHANGE if loop in ("feature", "angle") else Need.NOTHING


def rotary(g: Builder, x: Value, cos: Value, sin: Value) -> Value:
    """x[..., sequence, ..., feature] turned by the angles of cos and sin[sequence, angle]."""
    (position, angle), feature = cos.dims, x.dims[-1]
    if 2 * angle.size > feature.size:
        raise BadInput(f"{angle.size} angles turn {2 * angle.size} features, not {feature.size}")
    row: Dims = tuple(dim for dim in x.dims[:-1] if dim != position)
    loops = {"row": row, "position": (position,), "feature": (feature,), "angle": (angle,)}
    operator = Rotary(partial=2 * angle.size < feature.size)
    return g.apply(operator, loops, {"x": x, "cos": cos, "sin": sin}, x.dims)
