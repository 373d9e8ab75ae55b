"""An operator that nobody described: kept in the graph and priced as memory-bound."""

from __future__ import annotations

from typing import ClassVar

from foretell.model.operator import Need, Operator, OperatorPart, Sizes, Widths


class Unknown(Operator, frozen=True, tag="unknown"):
    """Reads its inputs and writes its output; one flop per element; keeps what was seen kept."""

    name: str
    matrix_flops: int = 0  # what a counter saw inside it, if anything, with so many items of output
    backward_flops: int = 0
    items: int = 1

    spans: ClassVar[dict[str, tuple[str, ...]]] = {"x": ("read",), "y": ("item",)}

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        part = OperatorPart(0, n["item"], n["read"] * width.get("x", 0), n["item"] * width["y"], 1, 0, n["item"], 1)
        return part + OperatorPart(matrix=self.matrix_flops * n["item"] // self.items)

    def input_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        traffic = n["item"] * width["y"], n["read"] * width.get("x", 0)
        return OperatorPart(self.backward_flops * n["item"] // self.items, n["item"], *traffic, 1, 0, n["item"], 1)

    def need(self, loop: str) -> Need:
        return Need.WHOLE
