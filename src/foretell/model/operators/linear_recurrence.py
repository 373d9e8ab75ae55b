"""Recurrences whose state is linear in what it was: the selective scan of Mamba, and the gated delta rule.

Both as the kernels that people train with run them: one forward and one backward call each, in which states are made
again. What autograd keeps is what those calls save (mamba_ssm 2, `selective_scan_interface.py`; flash-linear-attention
0.4, `gated_delta_rule/chunk.py`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from foretell.model.operator import Need, Operator, OperatorPart, Sizes, Widths
from foretell.units import Quantity, ceil_div, ceil_log2


class SelectiveScan(Operator, frozen=True, tag="selective_scan"):
    """h[t] = exp(a dt[t]) h[t-1] + dt[t] b[t] x[t]; y[t] = (c[t] h[t] + d x[t]) silu(z[t]), each channel by itself.

    Gu, Dao 2023 (Mamba), arXiv 2312.00752, section 3.3. No matrix unit has a part in it.
    """

    spans: ClassVar[dict[str, tuple[str, ...]]] = {
        "x": ("sample", "channel", "sequence"),
        "dt": ("sample", "channel", "sequence"),
        "b": ("sample", "state", "sequence"),
        "c": ("sample", "state", "sequence"),
        "z": ("sample", "channel", "sequence"),
        "a": ("channel", "state"),
        "d": ("channel",),
        "bias": ("channel",),
        "y": ("sample", "channel", "sequence"),
    }
    weight_operands: ClassVar[tuple[str, ...]] = ("a", "d", "bias")

    def _steps(self, n: Sizes) -> Quantity:
        """Numbers of all states."""
        return self.elements("y", n) * n["state"]

    def _depth(self, n: Sizes) -> Quantity:
        """Places are joined two by two, as a scan of an associative operation."""
        return 2 * ceil_log2(n["sequence"]) + ceil_log2(n["state"])

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        steps, y = self._steps(n), self.bytes_of(("y",), n, width)
        written = y * (2 if "z" in width else 1)  # before the gate as well
        read = self.bytes_of(self.inputs(), n, width)
        return OperatorPart(0, 9 * steps, read, written, 1, 1, steps, self._depth(n))

    def input_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        """States again, and the same backwards for each of what they are made of."""
        inputs = self.bytes_of(("x", "dt", "b", "c", "z"), n, width)
        read = inputs + self.bytes_of(("a", "d", "bias"), n, width) + 2 * self.bytes_of(("y",), n, width)
        return OperatorPart(0, 27 * self._steps(n), read, inputs, 1, 1, self._steps(n), 2 * self._depth(n))

    def weight_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        """Sums that the same kernel adds up."""
        written = self.bytes_of(self.weight_operands, n, width)
        steps = self._steps(n)
        return OperatorPart(0, 2 * steps, 0, written, 0, 0, steps, ceil_log2(n["sample"] * n["sequence"]))

    def keeps(self, needs: Collection[str]) -> tuple[str, ...]:
        return ("x", "dt", "b", "c", "z", "ungated")

    def extras(self) -> dict[str, tuple[tuple[str, ...], str]]:
        return {"ungated": (self.spans["y"], "same")}

    def need(self, loop: str) -> Need:
        return {"sequence": Need.SEQUENTIAL, "state": Need.SUM}.get(loop, Need.NOTHING)


class DeltaRule(Operator, frozen=True, tag="delta_rule"):
    """S[t] = exp(g[t]) S[t-1] (1 - beta[t] k[t] k[t]') + beta[t] x[t] k[t]'; y[t] = S[t] q[t], for each head.

    Chunk by chunk (Yang, Kautz, Hatamizadeh 2024, arXiv 2412.06464, section 3.3): in a chunk scores of keys and of
    queries with keys, and a triangular system for keys and values; between chunks three products with the state.
    """

    spans: ClassVar[dict[str, tuple[str, ...]]] = {
        "x": ("sample", "sequence", "head", "value"),
        "q": ("sample", "sequence", "head", "qk"),
        "k": ("sample", "sequence", "head", "qk"),
        "g": ("sample", "sequence", "head"),
        "beta": ("sample", "sequence", "head"),
        "y": ("sample", "sequence", "head", "value"),
    }

    def _products(self, n: Sizes) -> Quantity:
        """Multiply-adds of whole chunks."""
        rows = n["sample"] * n["head"] * n["sequence"]
        inside = n["chunk"] * (3 * n["qk"] + 2 * n["value"])
        return rows * (inside + 3 * n["qk"] * n["value"])

    def _inverse(self, n: Sizes) -> Quantity:
        """Numbers of the triangular inverses of all chunks."""
        return n["sample"] * n["sequence"] * n["head"] * n["chunk"]

    def _depth(self, n: Sizes) -> Quantity:
        return ceil_div(n["sequence"], n["chunk"]) + n["chunk"] + ceil_log2(n["qk"])

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        products, inverse = self._products(n), self._inverse(n)
        read = self.bytes_of(self.inputs(), n, width)
        written = self.bytes_of(("y",), n, width) + inverse * width["x"]
        return OperatorPart(2 * products, 4 * inverse, read, written, 6, 6, products, self._depth(n))

    def input_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        """Both gradients of each product, and what was not kept once more."""
        inputs = self.bytes_of(self.inputs(), n, width)
        read = inputs + self.bytes_of(("y",), n, width) + self._inverse(n) * width["x"]
        products = 3 * self._products(n)
        return OperatorPart(2 * products, 12 * self._inverse(n), read, inputs, 9, 9, products, 2 * self._depth(n))

    def keeps(self, needs: Collection[str]) -> tuple[str, ...]:
        return ("x", "q", "k", "g", "beta", "inverse")

    def extras(self) -> dict[str, tuple[tuple[str, ...], str]]:
        return {"inverse": (("sample", "sequence", "head", "chunk"), "same")}

    def need(self, loop: str) -> Need:
        known = {"sequence": Need.SEQUENTIAL, "qk": Need.WHOLE, "chunk": Need.WHOLE}
        return known.get(loop, Need.NOTHING)
