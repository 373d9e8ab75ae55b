"""The cross-entropy loss: log-softmax over the classes, then the target's entry, averaged."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, ClassVar

from foretell.model.operator import Need, Operator, OperatorPart, Sizes, Widths
from foretell.units import ceil_log2

if TYPE_CHECKING:
    from foretell.model.build import Builder, Value


class CrossEntropy(Operator, frozen=True, tag="cross_entropy"):
    """y = mean over row of -log softmax(x)[row, t[row]]."""

    spans: ClassVar[dict[str, tuple[str, ...]]] = {"x": ("row", "class"), "t": ("row",), "y": ()}

    fused: bool = False  # whether one kernel reads logits twice, and leaves their gradient where they were

    @property
    def priced_as(self) -> str:
        return "fused_cross_entropy" if self.fused else super().priced_as  # bound by its bytes alone

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        x = self.elements("x", n)
        if self.fused:
            read = 2 * x * width["x"] + n["row"] * width["t"]
            return OperatorPart(
                0, 9 * x, read, x * width["x"], 1, 1, x, 2 * ceil_log2(n["class"]) + ceil_log2(n["row"])
            )
        read = x * width["x"] + n["row"] * (width["t"] + width["x"])
        depth = 2 * ceil_log2(n["class"]) + ceil_log2(n["row"])
        return OperatorPart(0, 5 * x, read, x * width["x"], 2, 1, x, depth)

    def input_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        if self.fused:
            return OperatorPart()
        x = self.elements("x", n)  # scatter into zeros, then the gradient of log-softmax
        traffic = x * width["x"]
        return OperatorPart(0, 4 * x, 2 * traffic, 3 * traffic, 3, 1, x, ceil_log2(n["class"]))

    def keeps(self, needs: Collection[str]) -> tuple[str, ...]:
        return () if self.fused else ("logarithms", "t", "weight")

    def extras(self) -> dict[str, tuple[tuple[str, ...], str]]:
        return {"logarithms": (("row", "class"), "same"), "weight": ((), "same")}

    def statistics(self, loop: str) -> tuple[tuple[str, tuple[str, ...], int], ...]:
        # the largest logit, the sum of exponentials, and the target's logit of each row
        return (("forward", ("row",), 1),) * 3 if loop == "class" else ()

    def need(self, loop: str) -> Need:
        return Need.STATISTICS if loop == "class" else Need.SUM


def cross_entropy(g: Builder, x: Value, targets: Value, classes: int = 1) -> Value:
    """The loss of logits x[..., class], whose class dims are the last `classes` ones."""
    rows, inner = x.dims[:-classes], x.dims[-classes:]
    return g.apply(CrossEntropy(), {"row": rows, "class": inner}, {"x": x, "t": targets}, ())
