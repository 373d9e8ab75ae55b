"""Moving without computing: views (reshape, transpose, slice), concatenation, padding."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from foretell.model.dims import Dims
from foretell.model.operator import NOTHING, Operator, OperatorPart, Sizes, Widths

if TYPE_CHECKING:
    from foretell.model.build import Builder, Value


class View(Operator, frozen=True, tag="view"):
    """The same memory read with other dims: reshape, transpose, slice, expand. It is free.

    Only the gradient of a slice moves: it is laid into that of the whole.
    """

    function: str = "reshape"

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        return NOTHING

    def input_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        if self.function != "slice":
            return NOTHING
        size = n["item"] * width["y"]
        return OperatorPart(read=size, written=size, launches=1)


class Concatenate(Operator, frozen=True, tag="concatenate"):
    """Several tensors laid side by side in one: every element is read and written once."""

    spans: ClassVar[dict[str, tuple[str, ...]]] = {"x": ("item",), "y": ("item",)}

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        size = n["item"] * width["y"]
        return OperatorPart(0, 0, size, size, 1, 0, n["item"], 1)

    def input_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        return NOTHING  # each input's gradient is a slice of the output's


class Pad(Operator, frozen=True, tag="pad"):
    """A border added (or cut) around a tensor."""

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        size = n["item"] * width["y"]
        return OperatorPart(0, 0, size, size, 2, 0, n["item"], 1)

    def input_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        size = n["item"] * width["y"]
        return OperatorPart(0, 0, size, size, 1, 0, n["item"], 1)


def view(g: Builder, x: Value, shape: Dims, function: str = "reshape") -> Value:
    """x under other dims: a reshape, transpose, slice or broadcast that moves nothing."""
    return g.apply(View(function), {"item": shape}, {"x": x}, shape, storage=x)


def split(g: Builder, x: Value, dim: str, sizes: tuple[int, ...]) -> list[Value]:
    """x cut along one dim into views; each keeps the whole of x's memory."""
    pieces: list[Value] = []
    for size in sizes:
        shape = tuple(type(d)(d.name, size) if d.name == dim else d for d in x.dims)
        pieces.append(view(g, x, shape, "slice"))
    return pieces


def concatenate(g: Builder, parts: list[Value], dim: str) -> Value:
    """Tensors joined along one dim."""
    total = sum(part.size(dim) for part in parts)
    shape = tuple(type(d)(d.name, total) if d.name == dim else d for d in parts[0].dims)
    inputs = {"x" if i == 0 else f"x{i}": part for i, part in enumerate(parts)}
    return g.apply(Concatenate(), {"item": shape}, inputs, shape)


def pad(g: Builder, x: Value, shape: Dims) -> Value:
    """x with a border, given the dims it has afterwards."""
    return g.apply(Pad(), {"item": shape}, {"x": x}, shape)
