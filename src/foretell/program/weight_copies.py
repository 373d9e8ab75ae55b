"""Copies of weights in the width that products read: of fp32 weights under autocast, of frozen weights in few bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from foretell.model.autocast import HALF, PRODUCTS
from foretell.model.graph import Node
from foretell.model.quantized import FORMATS, QuantizedFormat
from foretell.program.action import Compute
from foretell.program.sharding.layout import Layout
from foretell.units import WIDTH, Quantity

WIDENS: Final = "dequantize"
"""The operator that makes a copy of a frozen weight."""


class WeightCopy(NamedTuple):
    """A copy of one weight that an operator reads."""

    tensor: int
    elements: Quantity
    width: int  # bytes of an element as the operator reads it
    form: QuantizedFormat | None  # of the weight in few bits; None: it is cast by autocast
    kept: bool  # from the forward pass to the backward pass; else for one use

    @property
    def bytes(self) -> Quantity:
        return self.elements * self.width


def weight_copies(layout: Layout, at: int, node: Node) -> Iterator[WeightCopy]:
    """Autocast casts a weight for each product, which keeps the copy; few bits are widened for each use,
    unless the product reads them as they lie."""
    block = layout.graph.blocks[at]
    for operand in node.inputs:
        tensor = layout.graph.tensor(block, operand.tensor)
        if tensor.role != "parameter" or not (tensor.form or (layout.autocast and node.kind in PRODUCTS)):
            continue
        form = FORMATS[tensor.form] if tensor.form else None
        if form is not None and form.products:
            continue
        width = HALF if layout.autocast else WIDTH[tensor.dtype]
        elements, kept = layout.elements_of(at, operand.tensor), form is None or form.kept
        yield WeightCopy(operand.tensor, elements, width, form, kept)


def widened_for(layout: Layout, at: int, node: Node, part: str) -> Iterator[WeightCopy]:
    """The weights in few bits that are widened for a part of an operator; the backward pass reads those it kept."""
    parts = ("forward", "input_gradient")
    return (
        copy for copy in weight_copies(layout, at, node) if copy.form and part in (parts[:1] if copy.kept else parts)
    )


def widening(layout: Layout, at: int, node: Node, part: str) -> Iterator[Compute]:
    """What that costs, before the part itself."""
    for copy in widened_for(layout, at, node, part):
        assert copy.form is not None
        yield Compute(node.path, WIDENS, part, {"item": copy.elements}, copy.form.widening(copy.elements, copy.width))
