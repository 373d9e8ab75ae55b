"""Recurrent layers: RNN, LSTM, GRU. Steps follow one another, so depth grows with the sequence.

Kernels and kept tensors are those of a plain loop over time, as in `foretell.modules`, or of one call of a library.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from foretell.errors import unknown
from foretell.model.dims import Dim, Dims
from foretell.model.operator import Need, Operator, OperatorPart, Sizes, Widths
from foretell.units import Quantity, ceil_log2, product

if TYPE_CHECKING:
    from foretell.model.build import Builder, Value


class RecurrentCell(NamedTuple):
    """What one step is: products per unit, what it keeps, and the kernels of a loop over time."""

    gates: int
    keeps: tuple[str, ...]  # beside the input and all hidden states
    forward: int  # kernels a step, eager; fused they are two: the product, and all the rest
    backward: int


CELLS: dict[str, RecurrentCell] = {
    "rnn": RecurrentCell(1, (), 2, 4),  # its only gate is the hidden state itself
    "lstm": RecurrentCell(4, ("gates", "state"), 11, 17),
    # the state that the reset gate scales cannot be told from the gates: it is kept as well
    "gru": RecurrentCell(3, ("gates", "state"), 10, 15),
}

GATES = {name: cell.gates for name, cell in CELLS.items()}


class Recurrent(Operator, frozen=True, tag="recurrent"):
    """One layer in one direction: h[t] = cell(x[t], h[t-1]), with one product per gate and unit.

    The input products of all steps are one matrix product; the recurrent ones are one per step.
    """

    cell: str

    spans: ClassVar[dict[str, tuple[str, ...]]] = {
        "x": ("sample", "sequence", "in"),
        "w": ("gate", "out", "in"),
        "u": ("gate", "out", "unit"),
        "b": ("gate", "out"),
        "c": ("gate", "out"),
        "y": ("sample", "sequence", "out"),
    }
    weight_operands: ClassVar[tuple[str, ...]] = ("w", "u", "b", "c")

    def _products(self, n: Sizes) -> Quantity:
        return n["sample"] * n["sequence"] * n["gate"] * n["out"] * (n["in"] + n["unit"])

    def _weights(self, n: Sizes, width: Widths) -> Quantity:
        """Bytes of weights read: the recurrent ones again at every step."""
        return self.bytes_of(("w", "b", "c"), n, width) + self.bytes_of(("u",), n, width) * n["sequence"]

    def _gates(self, n: Sizes) -> Quantity:
        return n["sample"] * n["sequence"] * n["gate"] * n["out"]

    def _kept(self, n: Sizes, width: Widths) -> Quantity:
        """Bytes kept beside the input and the output."""
        extras = self.extras()
        kept = sum(product(n[loop] for loop in extras[name][0]) for name in CELLS[self.cell].keeps)
        return kept * width["y"]

    def _part(self, n: Sizes, read: Quantity, written: Quantity, kernels: Quantity) -> OperatorPart:
        products = self._products(n)
        steps = n["sequence"]
        depth = ceil_log2(n["in"]) + steps * (ceil_log2(n["unit"]) + 3)
        return OperatorPart(2 * products, 6 * self._gates(n), read, written, kernels, 1 + 2 * steps, products, depth)

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        sums = self._gates(n) * width["y"]  # of inputs, for all steps, before the old state is added
        read = self.bytes_of(("x", "y"), n, width) + self._weights(n, width) + sums
        written = self.bytes_of(("y",), n, width) + sums + self._kept(n, width)
        return self._part(n, read, written, 3 + CELLS[self.cell].forward * n["sequence"])

    def input_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        changes = self._gates(n) * width["y"]
        read = 2 * self.bytes_of(("y",), n, width) + self._weights(n, width) + self._kept(n, width) + changes
        written = self.bytes_of(("x",), n, width) + changes
        return self._part(n, read, written, 2 + CELLS[self.cell].backward * n["sequence"])

    def weight_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        products = self._products(n)
        read = self.bytes_of(("x", "y"), n, width) + self._gates(n) * width["y"]
        written = self.bytes_of(self.weight_operands, n, width)
        return OperatorPart(2 * products, 0, read, written, 4, 3, products, ceil_log2(n["sample"] * n["sequence"]))

    def keeps(self, needs: Collection[str]) -> tuple[str, ...]:
        return ("x", "y", *CELLS[self.cell].keeps)

    def extras(self) -> dict[str, tuple[tuple[str, ...], str]]:
        return {
            "gates": (("sample", "sequence", "gate", "out"), "same"),
            "state": (("sample", "sequence", "out"), "same"),
        }

    def need(self, loop: str) -> Need:
        # whoever computes some units needs the others' old states at every step
        needs = {"sequence": Need.SEQUENTIAL, "in": Need.SUM, "unit": Need.SUM, "out": Need.GATHER, "gate": Need.GATHER}
        return needs.get(loop, Need.NOTHING)


class RecurrentCall(Recurrent, frozen=True, tag="recurrent_call"):
    """A layer whose steps a library runs: torch.nn's own, on GPUs cuDNN's.

    Products of inputs are one for all steps, the gates of a unit one product and one kernel after it (Appleyard et al.
    2016, arXiv 1604.01946); weights are read once, and stay in a cache where they have room.
    """

    def _weights(self, n: Sizes, width: Widths) -> Quantity:
        return self.bytes_of(("w", "u", "b", "c"), n, width)

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        return replace(super().forward(n, width), launches=1)

    def input_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        return replace(super().input_gradient(n, width), launches=1)


def recurrent(g: Builder, x: Value, cell: str, units: int) -> Value:
    """One recurrent layer over x[sample, sequence, feature], with both of PyTorch's biases."""
    if cell not in CELLS:
        raise unknown("recurrent cell", cell, CELLS)
    sample, sequence, feature = x.dims
    gate, out = Dim("gate", GATES[cell]), Dim("hidden", units)
    loops: dict[str, Dims] = {
        "sample": (sample,),
        "sequence": (sequence,),
        "in": (feature,),
        "unit": (Dim("unit", units),),
        "gate": (gate,),
        "out": (out,),
    }
    inputs = {
        "x": x,
        "w": g.parameter("weight_ih", (gate, out, feature)),
        "u": g.parameter("weight_hh", (gate, out, Dim("unit", units))),
        "b": g.parameter("bias_ih", (gate, out)),
        "c": g.parameter("bias_hh", (gate, out)),
    }
    return g.apply(Recurrent(cell), loops, inputs, (sample, sequence, out))
