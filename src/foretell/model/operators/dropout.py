"""Dropout: a random mask, applied and kept."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from foretell.model.operator import Operator, Part, Sizes, Widths

if TYPE_CHECKING:
    from foretell.model.build import Builder, Value


class Dropout(Operator, frozen=True, tag="dropout"):
    """y = x * mask / (1 - rate). GPUs keep the mask as one byte per element."""

    def forward(self, n: Sizes, width: Widths) -> Part:
        x = n["item"]
        return Part(0, 2 * x, x * width["x"], x * (width["y"] + 1), 1, 0, x, 1)

    def input_gradient(self, n: Sizes, width: Widths) -> Part:
        x = n["item"]
        return Part(0, 2 * x, x * (width["y"] + 1), x * width["x"], 1, 0, x, 1)

    def keeps(self, needs: Collection[str]) -> tuple[str, ...]:
        return ("mask",)

    def extras(self) -> dict[str, tuple[tuple[str, ...], str]]:
        return {"mask": (("item",), "bool")}


def dropout(g: Builder, x: Value, rate: float) -> Value:
    """x with a share of its elements set to zero; x itself when the rate is zero."""
    if rate <= 0:
        return x
    return g.apply(Dropout(), {"item": x.dims}, {"x": x}, x.dims)
