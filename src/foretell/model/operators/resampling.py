"""Upsampling: every output position mixes a few input positions."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from foretell.model.dims import Dim
from foretell.model.operator import Need, Operator, OperatorPart, Sizes, Widths
from foretell.model.operators.convolution import SPACE
from foretell.units import Quantity, product

if TYPE_CHECKING:
    from foretell.model.build import Builder, Value


class Upsample(Operator, frozen=True, tag="upsample"):
    """y at a finer grid, by the nearest input or a linear mix of neighbours."""

    factor: tuple[int, ...]
    function: str = "nearest"

    spans: ClassVar[dict[str, tuple[str, ...]]] = {
        "x": ("sample", "channel", *SPACE),
        "y": ("sample", "channel", *SPACE),
    }

    def elements(self, operand: str, n: Sizes) -> Quantity:
        y = n["sample"] * n["channel"] * product(n[loop] for loop in SPACE if loop in n)
        return y if operand == "y" else y // product(self.factor)

    def _part(self, n: Sizes, read: Quantity, written: Quantity) -> OperatorPart:
        y = self.elements("y", n)
        taps = 1 if self.function == "nearest" else 2 ** len(self.factor)
        return OperatorPart(0, 2 * taps * y, read, written, 1, 1, taps * y, 1 if taps == 1 else len(self.factor))

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        return self._part(n, self.bytes_of(("x",), n, width), self.bytes_of(("y",), n, width))

    def input_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        return self._part(n, self.bytes_of(("y",), n, width), self.bytes_of(("x",), n, width))

    def need(self, loop: str) -> Need:
        return Need.HALO if any(self.halo(loop)) else Need.NOTHING

    def halo(self, loop: str) -> tuple[int, int]:
        return (1, 1) if loop in SPACE and self.function != "nearest" else (0, 0)


def upsample(g: Builder, x: Value, factor: int, function: str = "nearest") -> Value:
    """x[sample, channel, space...] with every spatial dim `factor` times finer."""
    sample, channel, *space = x.dims
    out = tuple(Dim(dim.name, dim.size * factor) for dim in space)
    loops = {"sample": (sample,), "channel": (channel,), **{dim.name: (dim,) for dim in out}}
    return g.apply(Upsample((factor,) * len(space), function), loops, {"x": x}, (sample, channel, *out))
