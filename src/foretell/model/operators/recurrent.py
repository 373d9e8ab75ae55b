"""Recurrent layers: RNN, LSTM, GRU. Steps follow one another, so depth grows with the sequence."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, ClassVar

from foretell.errors import BadInput
from foretell.model.dims import Dim, Dims
from foretell.model.operator import Need, Operator, Part, Sizes, Widths
from foretell.units import Quantity, ceil_log2

if TYPE_CHECKING:
    from foretell.model.build import Builder, Value

GATES = {"rnn": 1, "lstm": 4, "gru": 3}


class Recurrent(Operator, frozen=True, tag="recurrent"):
    """One layer in one direction: h[t] = cell(x[t], h[t-1]) with `GATES` products per unit.

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
        return self.bytes_of(("w", "b", "c"), n, width) + self.bytes_of(("u",), n, width) * n["sequence"]

    def _cell(self, n: Sizes) -> Quantity:
        return n["sample"] * n["sequence"] * n["out"] * n["gate"]

    def _part(self, n: Sizes, read: Quantity, written: Quantity) -> Part:
        products = self._products(n)
        steps = n["sequence"]
        depth = ceil_log2(n["in"]) + steps * (ceil_log2(n["unit"]) + 3)
        kernels = 1 + 2 * steps
        return Part(2 * products, 6 * self._cell(n), read, written, kernels, kernels, products, depth)

    def forward(self, n: Sizes, width: Widths) -> Part:
        gates = self._cell(n) * width["y"]
        read = self.bytes_of(("x", "y"), n, width) + self._weights(n, width) + gates
        return self._part(n, read, self.bytes_of(("y",), n, width) + gates)

    def input_gradient(self, n: Sizes, width: Widths) -> Part:
        gates = self._cell(n) * width["y"]
        read = self.bytes_of(("y",), n, width) + self._weights(n, width) + 2 * gates
        return self._part(n, read, self.bytes_of(("x",), n, width) + gates)

    def weight_gradient(self, n: Sizes, width: Widths) -> Part:
        products = self._products(n)
        read = self.bytes_of(("x", "y"), n, width) + self._cell(n) * width["y"]
        written = self.bytes_of(self.weight_operands, n, width)
        return Part(2 * products, 0, read, written, 3, 3, products, ceil_log2(n["sample"] * n["sequence"]))

    def keeps(self, needs: Collection[str]) -> tuple[str, ...]:
        state = ("state",) if self.cell == "lstm" else ()
        return ("x", "y", "gates", *state)

    def extras(self) -> dict[str, tuple[tuple[str, ...], str]]:
        return {
            "gates": (("sample", "sequence", "gate", "out"), "same"),
            "state": (("sample", "sequence", "out"), "same"),
        }

    def need(self, loop: str) -> Need:
        return {"sequence": Need.SEQUENTIAL, "in": Need.SUM, "unit": Need.SUM}.get(loop, Need.NOTHING)


def recurrent(g: Builder, x: Value, cell: str, units: int) -> Value:
    """One recurrent layer over x[sample, sequence, feature], with both of PyTorch's biases."""
    if cell not in GATES:
        raise BadInput(f"no recurrent cell is called {cell!r}", fix=", ".join(GATES))
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
