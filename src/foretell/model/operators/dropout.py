"""Dropout: a random mask over elements, or over whole samples (stochastic depth), applied and kept."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, ClassVar

from foretell.model.operator import Operator, OperatorPart, Sizes, Widths

if TYPE_CHECKING:
    from foretell.model.build import Builder, Value


class Dropout(Operator, frozen=True, tag="dropout"):
    """y = x * mask / (1 - rate). GPUs keep the mask as one byte per element."""

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        x = n["item"]
        return OperatorPart(0, 2 * x, x * width["x"], x * (width["y"] + 1), 1, 0, x, 1)

    def input_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        x = n["item"]
        return OperatorPart(0, 2 * x, x * (width["y"] + 1), x * width["x"], 1, 0, x, 1)

    def evaluated(self) -> None:
        return None

    def keeps(self, needs: Collection[str]) -> tuple[str, ...]:
        return ("mask",)

    def extras(self) -> dict[str, tuple[tuple[str, ...], str]]:
        return {"mask": (("item",), "bool")}


class StochasticDepth(Operator, frozen=True, tag="stochastic_depth"):
    """y = x * mask / (1 - rate) with one mask entry per sample."""

    spans: ClassVar[dict[str, tuple[str, ...]]] = {"x": ("sample", "item"), "y": ("sample", "item")}

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        x = self.elements("x", n)
        mask = n["sample"] * width["x"]  # drawn, scaled, then applied
        return OperatorPart(0, x, x * width["x"] + 2 * mask, x * width["y"] + 2 * mask, 3, 0, x, 1)

    def input_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        x = self.elements("x", n)
        return OperatorPart(0, x, x * width["y"] + n["sample"] * width["x"], x * width["x"], 1, 0, x, 1)

    def evaluated(self) -> None:
        return None

    def keeps(self, needs: Collection[str]) -> tuple[str, ...]:
        return ("mask",)

    def extras(self) -> dict[str, tuple[tuple[str, ...], str]]:
        return {"mask": (("sample",), "same")}


def dropout(g: Builder, x: Value, rate: float) -> Value:
    """x with a share of its elements set to zero; x itself when the rate is zero."""
    if rate <= 0:
        return x
    return g.apply(Dropout(), {"item": x.dims}, {"x": x}, x.dims)


def stochastic_depth(g: Builder, x: Value, rate: float) -> Value:
    """x[sample, ...] with a share of the samples set to zero; x itself when the rate is zero."""
    if rate <= 0:
        return x
    return g.apply(StochasticDepth(), {"sample": x.dims[:1], "item": x.dims[1:]}, {"x": x}, x.dims)
