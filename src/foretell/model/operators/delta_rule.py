"""The gated delta rule: a state for each head that each place corrects at its key, chunk by chunk.

As in Yang et al. 2024 (arXiv 2412.06464, section 3.3) and its kernels (fla-org/flash-linear-attention,
fla/ops/gated_delta_rule/chunk.py at 0315a70): keys of a chunk meet each other, the triangle of what they have in common
is inverted, and with it keys and values become those of the chunk as a whole; states go from chunk to chunk. What is
kept is what went in, with queries and keys divided by their lengths, sums of decays, and the inverse.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, ClassVar

from foretell.model.dims import Dim
from foretell.model.operator import NOTHING, Need, Operator, OperatorPart, Sizes, Widths
from foretell.units import Quantity, at_most, ceil_div, ceil_log2

if TYPE_CHECKING:
    from foretell.model.build import Builder, Value

CHUNK = 64
"""Places of a chunk in those kernels."""


class DeltaRule(Operator, frozen=True, tag="delta_rule"):
    """y[t] = S[t] q[t], where S[t] = d[t] S[t-1] (1 - e[t] k[t] k[t]^T) + e[t] v[t] k[t]^T, for each head.

    d = exp(-exp(a) softplus(dt + bias)), or exp(g) where others made its logarithm; `e` is how much of a value is
    written. q and k are divided by their lengths first.
    """

    chunk: int = CHUNK

    spans: ClassVar[dict[str, tuple[str, ...]]] = {
        "q": ("sample", "sequence", "head", "key"),
        "k": ("sample", "sequence", "head", "key"),
        "v": ("sample", "sequence", "head", "value"),
        "dt": ("sample", "sequence", "head"),
        "g": ("sample", "sequence", "head"),
        "e": ("sample", "sequence", "head"),
        "a": ("head",),
        "bias": ("head",),
        "y": ("sample", "sequence", "head", "value"),
    }
    weight_operands: ClassVar[tuple[str, ...]] = ("a", "bias")

    def length(self, n: Sizes) -> Quantity:
        """Places of one chunk."""
        return at_most(n["sequence"], self.chunk)

    def rows(self, n: Sizes) -> Quantity:
        """Places of all heads and chunks: the last one is filled up."""
        return n["sample"] * n["head"] * ceil_div(n["sequence"], self.length(n)) * self.length(n)

    def products(self, n: Sizes) -> tuple[Quantity, Quantity, Quantity, Quantity]:
        """Multiply-adds of a product over features of keys and one of values inside chunks, one with a state, and one
        of two triangles."""
        rows, length = self.rows(n), self.length(n)
        return rows * length * n["key"], rows * length * n["value"], rows * n["key"] * n["value"], rows * length**2

    def _depth(self, n: Sizes) -> Quantity:
        return ceil_div(n["sequence"], self.length(n)) + ceil_log2(n["key"]) + 2 * ceil_log2(self.length(n))

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        keys, values, state, inverse = self.products(n)
        products = 3 * keys + 2 * values + 3 * state
        scores = self.rows(n) * self.length(n)
        vector = 6 * scores + inverse // 3 + 6 * (self.elements("q", n) + self.elements("k", n))
        read, written = self.bytes_of(self.inputs(), n, width), self.bytes_of(("y",), n, width)
        kept = (scores + self.elements("q", n) + self.elements("k", n)) * width["v"]
        return OperatorPart(2 * products, vector, read + kept, written + kept, 8, 8, products, self._depth(n))

    def input_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        """Both gradients of each product, and those that make what was not kept again."""
        keys, values, state, inverse = self.products(n)
        products = 9 * keys + 5 * values + 8 * state + 2 * inverse
        scores = self.rows(n) * self.length(n)
        inputs = self.bytes_of(("q", "k", "v", "dt", "g", "e"), n, width)
        read = 2 * inputs + 2 * self.bytes_of(("y",), n, width) + scores * width["v"]
        return OperatorPart(2 * products, 14 * scores, read, inputs, 9, 9, products, 2 * self._depth(n))

    def weight_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        """Sums of what the gradients of the inputs made."""
        if not any(name in width for name in self.weight_operands):
            return NOTHING
        dt = self.elements("dt", n)
        written = self.bytes_of(self.weight_operands, n, width)
        return OperatorPart(0, 4 * dt, 2 * dt * width["y"], written, 2, 2, dt, ceil_log2(dt))

    def keeps(self, needs: Collection[str]) -> tuple[str, ...]:
        """Of `g` its sums are enough; `dt` is needed for the gradient of the softplus."""
        steps = ("dt",) if "dt" in needs else ()
        return ("unit_q", "unit_k", "length_q", "length_k", "v", *steps, "e", "sums", "inverse")

    def extras(self) -> dict[str, tuple[tuple[str, ...], str]]:
        places = ("sample", "sequence", "head")
        return {
            "unit_q": ((*places, "key"), "same"),
            "unit_k": ((*places, "key"), "same"),
            "length_q": (places, "fp32"),
            "length_k": (places, "fp32"),
            "sums": (places, "fp32"),
            "inverse": ((*places, "place"), "same"),
        }

    def need(self, loop: str) -> Need:
        return {"sequence": Need.SEQUENTIAL, "key": Need.SUM}.get(loop, Need.NOTHING)


def delta_rule(g: Builder, q: Value, k: Value, v: Value, dt: Value, e: Value) -> Value:
    """v[sample, sequence, head, feature] under keys and queries of as many heads."""
    sample, sequence, head, value = v.dims
    loops = {
        "sample": (sample,),
        "sequence": (sequence,),
        "head": (head,),
        "key": k.dims[-1:],
        "value": (value,),
        "place": (Dim("place", min(CHUNK, sequence.size)),),
    }
    inputs = {
        "q": q,
        "k": k,
        "v": v,
        "dt": dt,
        "e": e,
        "a": g.parameter("decay", (head,)),
        "bias": g.parameter("bias", (head,)),
    }
    return g.apply(DeltaRule(), loops, inputs, v.dims)
