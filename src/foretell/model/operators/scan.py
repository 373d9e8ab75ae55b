"""Scans of state space models, chunk by chunk: products inside a chunk, and a state that goes from chunk to chunk.

As in Mamba-2 (Dao, Gu 2024, section 6): within a chunk queries `c` meet keys `b` under a decay, as in attention; what
lies before the chunk is in a state of `state` x `feature` numbers a head. Nothing is kept but what went in: the way
back makes scores and states again.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, ClassVar

from foretell.model.dims import Dim
from foretell.model.operator import Need, Operator, OperatorPart, Sizes, Widths
from foretell.units import Quantity, at_most, ceil_div, ceil_log2

if TYPE_CHECKING:
    from foretell.model.build import Builder, Value


class Scan(Operator, frozen=True, tag="scan"):
    """y[t] = c[t] h[t] + d x[t], where h[t] = exp(a dt[t]) h[t-1] + dt[t] b[t] x[t], for each head of each group.

    `dt` goes through a softplus with a bias first; `b` and `c` are those of a group of heads.
    """

    chunk: int = 256

    spans: ClassVar[dict[str, tuple[str, ...]]] = {
        "x": ("sample", "sequence", "group", "share", "feature"),
        "dt": ("sample", "sequence", "group", "share"),
        "b": ("sample", "sequence", "group", "state"),
        "c": ("sample", "sequence", "group", "state"),
        "a": ("group", "share"),
        "d": ("group", "share"),
        "bias": ("group", "share"),
        "y": ("sample", "sequence", "group", "share", "feature"),
    }
    weight_operands: ClassVar[tuple[str, ...]] = ("a", "d", "bias")

    def length(self, n: Sizes) -> Quantity:
        """Places of one chunk."""
        return at_most(n["sequence"], self.chunk)

    def places(self, n: Sizes) -> Quantity:
        """Places of all chunks: the last one is filled up."""
        return ceil_div(n["sequence"], self.length(n)) * self.length(n)

    def products(self, n: Sizes) -> tuple[Quantity, Quantity, Quantity]:
        """Multiply-adds of c with b, of scores with x, and of one product with a state (there are two)."""
        rows = n["sample"] * self.places(n) * n["group"]
        scores = rows * self.length(n) * n["state"]
        return scores, rows * n["share"] * self.length(n) * n["feature"], rows * n["share"] * n["state"] * n["feature"]

    def decays(self, n: Sizes) -> Quantity:
        """Scores of all heads: each is multiplied by how much is left of it."""
        return n["sample"] * self.places(n) * n["group"] * n["share"] * self.length(n)

    def _depth(self, n: Sizes) -> Quantity:
        return ceil_div(n["sequence"], self.length(n)) + ceil_log2(n["state"]) + ceil_log2(self.length(n))

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        scores, mixed, state = self.products(n)
        products = scores + mixed + 2 * state
        read = self.bytes_of(self.inputs(), n, width)
        written = self.bytes_of(("y",), n, width)
        return OperatorPart(2 * products, 4 * self.decays(n), read, written, 5, 5, products, self._depth(n))

    def input_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        """Both gradients of each product; scores and states again (mamba_ssm's kernels do so too)."""
        scores, mixed, state = self.products(n)
        products = 3 * scores + 2 * mixed + 5 * state
        inputs = self.bytes_of(("x", "dt", "b", "c"), n, width)
        read = inputs + 2 * self.bytes_of(("y",), n, width)
        return OperatorPart(2 * products, 9 * self.decays(n), read, inputs, 11, 11, products, 2 * self._depth(n))

    def weight_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        """Sums of what the gradients of the inputs made."""
        dt, y = self.elements("dt", n), self.elements("y", n)
        written = self.bytes_of(self.weight_operands, n, width)
        return OperatorPart(0, 2 * (dt + y), 2 * dt * width["y"], written, 3, 3, dt, ceil_log2(dt))

    def keeps(self, needs: Collection[str]) -> tuple[str, ...]:
        return ("x", "dt", "b", "c")

    def need(self, loop: str) -> Need:
        return {"sequence": Need.SEQUENTIAL, "state": Need.SUM}.get(loop, Need.NOTHING)


class ShortConvolution(Operator, frozen=True, tag="short_convolution"):
    """y[place, channel] = sum over the last few places of x[place - i, channel] w[channel, i], plus b[channel].

    Each channel by itself, so that it is a pass over memory and no product of matrices.
    """

    taps: int = 4

    spans: ClassVar[dict[str, tuple[str, ...]]] = {
        "x": ("sample", "sequence", "channel"),
        "w": ("channel", "tap"),
        "b": ("channel",),
        "y": ("sample", "sequence", "channel"),
    }

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        y = self.elements("y", n)
        read, written = self.bytes_of(("x", "w", "b"), n, width), self.bytes_of(("y",), n, width)
        return OperatorPart(0, 2 * n["tap"] * y, read, written, 1, 1, n["tap"] * y, ceil_log2(n["tap"]))

    def input_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        y = self.elements("y", n)
        read, written = self.bytes_of(("y", "w"), n, width), self.bytes_of(("x",), n, width)
        return OperatorPart(0, 2 * n["tap"] * y, read, written, 1, 1, n["tap"] * y, ceil_log2(n["tap"]))

    def weight_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        y = self.elements("y", n)
        read, written = self.bytes_of(("y", "x"), n, width), self.bytes_of(("w", "b"), n, width)
        depth = ceil_log2(n["sample"] * n["sequence"])
        return OperatorPart(0, 2 * n["tap"] * y, read, written, 1, 1, n["tap"] * y, depth)

    def keeps(self, needs: Collection[str]) -> tuple[str, ...]:
        return (*(("x",) if "w" in needs else ()), *(("w",) if "x" in needs else ()))

    def need(self, loop: str) -> Need:
        return {"sequence": Need.HALO, "tap": Need.SUM}.get(loop, Need.NOTHING)

    def halo(self, loop: str) -> tuple[int, int]:
        return (self.taps - 1, 0) if loop == "sequence" else (0, 0)


def scan(g: Builder, x: Value, dt: Value, b: Value, c: Value, *, chunk: int) -> Value:
    """x[sample, sequence, group, share, feature] scanned by b and c[sample, sequence, group, state]."""
    sample, sequence, group, share, feature = x.dims
    heads = (group, share)
    loops = {
        "sample": (sample,),
        "sequence": (sequence,),
        "group": (group,),
        "share": (share,),
        "feature": (feature,),
        "state": b.dims[-1:],
    }
    inputs = {
        "x": x,
        "dt": dt,
        "b": b,
        "c": c,
        "a": g.parameter("decay", heads),
        "d": g.parameter("skip", heads),
        "bias": g.parameter("bias", heads),
    }
    return g.apply(Scan(chunk), loops, inputs, x.dims)


def short_convolution(g: Builder, x: Value, taps: int, *, bias: bool = True) -> Value:
    """A causal convolution of each channel of x[sample, sequence, channel]."""
    sample, sequence, channel = x.dims
    tap = Dim("tap", taps)
    inputs = {"x": x, "w": g.parameter("weight", (channel, tap))}
    if bias:
        inputs["b"] = g.parameter("bias", (channel,))
    loops = {"sample": (sample,), "sequence": (sequence,), "channel": (channel,), "tap": (tap,)}
    return g.apply(ShortConvolution(taps), loops, inputs, x.dims)
