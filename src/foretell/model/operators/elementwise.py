"""Element-wise functions: activations, sums, products, casts and copies."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from foretell.model.operator import Operator, OperatorPart, Sizes, Widths

if TYPE_CHECKING:
    from foretell.model.build import Builder, Value


class ElementwiseFunction(NamedTuple):
    """Flops per element, and what autograd keeps: 'x' or 'y' where the formula needs it."""

    flops: int
    keeps: str  # "", "x" or "y"; two-operand products keep the other operand


FUNCTIONS: dict[str, ElementwiseFunction] = {
    "relu": ElementwiseFunction(1, "y"),
    "relu6": ElementwiseFunction(2, "x"),
    "leaky_relu": ElementwiseFunction(2, "x"),
    "elu": ElementwiseFunction(3, "x"),
    "gelu": ElementwiseFunction(8, "x"),
    "gelu_tanh": ElementwiseFunction(10, "x"),
    "silu": ElementwiseFunction(5, "x"),
    "mish": ElementwiseFunction(8, "x"),
    "sigmoid": ElementwiseFunction(4, "y"),
    "hardsigmoid": ElementwiseFunction(3, "x"),
    "hardswish": ElementwiseFunction(4, "x"),
    "tanh": ElementwiseFunction(5, "y"),
    "softplus": ElementwiseFunction(5, "x"),
    "exp": ElementwiseFunction(3, "y"),
    "log": ElementwiseFunction(3, "x"),
    "sqrt": ElementwiseFunction(2, "y"),
    "rsqrt": ElementwiseFunction(2, "y"),
    "pow": ElementwiseFunction(2, "x"),
    "square": ElementwiseFunction(1, "x"),
    "sin": ElementwiseFunction(4, "x"),
    "cos": ElementwiseFunction(4, "x"),
    "abs": ElementwiseFunction(1, "x"),
    "clamp": ElementwiseFunction(2, "x"),
    "negate": ElementwiseFunction(1, ""),
    "scale": ElementwiseFunction(1, ""),  # by a number that is not a tensor
    "cast": ElementwiseFunction(0, ""),
    "copy": ElementwiseFunction(0, ""),
    "add": ElementwiseFunction(1, ""),
    "subtract": ElementwiseFunction(1, ""),
    "multiply": ElementwiseFunction(1, ""),  # keeps the other operand, see below
    "divide": ElementwiseFunction(1, ""),
    "where": ElementwiseFunction(1, ""),
    "maximum": ElementwiseFunction(1, ""),
    "fill": ElementwiseFunction(0, ""),  # written without reading anything
    "random": ElementwiseFunction(10, ""),  # drawn numbers
    "other": ElementwiseFunction(4, ""),  # any function of one element that has no word here
}


class Elementwise(Operator, frozen=True, tag="elementwise"):
    """y = f(x) or f(x, z), one element at a time; z may repeat over some dims (broadcast)."""

    function: str

    spans: ClassVar[dict[str, tuple[str, ...]]] = {"x": ("item",), "z": ("item",), "y": ("item",)}

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        y = n["item"]
        flops = FUNCTIONS[self.function].flops * y
        return OperatorPart(0, flops, self.bytes_of(("x", "z"), n, width), y * width["y"], 1, 0, y, 1)

    def input_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        if self.function == "subtract" and "z" in width:
            y = n["item"]  # only z's gradient needs a kernel: the negative of y's
            return OperatorPart(vector=y, read=y * width["y"], written=y * width["z"], launches=1, work=y, depth=1)
        if self.function in ("add", "subtract"):
            return OperatorPart()  # the gradient passes through unchanged: no kernel runs
        y = n["item"]
        read = y * width["y"] * (2 if FUNCTIONS[self.function].keeps else 1)
        flops = (FUNCTIONS[self.function].flops + 1) * y
        if self.function in ("multiply", "divide") and "z" in width:
            written = self.bytes_of(("x", "z"), n, width)
            return OperatorPart(0, 2 * y, 2 * read + written, written, 2, 0, 2 * y, 1)
        return OperatorPart(0, flops, read, y * width["x"], 1, 0, y, 1)

    def keeps(self, needs: Collection[str]) -> tuple[str, ...]:
        if self.function == "multiply":
            kept = [other for need, other in (("x", "z"), ("z", "x")) if need in needs]
            return tuple(kept)
        if self.function == "divide":
            return ("x", "z") if "z" in needs else ("z",)
        keeps = FUNCTIONS[self.function].keeps
        return (keeps,) if keeps else ()


def activation(g: Builder, x: Value, function: str, *, inplace: bool = False) -> Value:
    """One element-wise function of one tensor; in place, it takes over the tensor's memory."""
    return g.apply(Elementwise(function), {"item": x.dims}, {"x": x}, x.dims, storage=x if inplace else None)


def combine(g: Builder, x: Value, z: Value, function: str = "add", *, inplace: bool = False) -> Value:
    """An element-wise function of two tensors of one shape (the second may broadcast)."""
    return g.apply(Elementwise(function), {"item": x.dims}, {"x": x, "z": z}, x.dims, storage=x if inplace else None)


def cast(g: Builder, x: Value, dtype: str) -> Value:
    """The same values in another type; nothing at all if it has that type already."""
    if x.dtype == dtype:
        return x
    return g.apply(Elementwise("cast"), {"item": x.dims}, {"x": x}, x.dims, dtype=dtype)


def copy(g: Builder, x: Value) -> Value:
    """The same values in memory of their own, in the order of the dims (contiguous)."""
    return g.apply(Elementwise("copy"), {"item": x.dims}, {"x": x}, x.dims)
