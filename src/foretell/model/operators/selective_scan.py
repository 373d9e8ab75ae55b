"""The scan of Mamba's first version: a state of a few numbers for each channel, which no product of matrices makes.

As in Gu, Dao 2023 (arXiv 2312.00752, algorithm 2). Inputs alone are kept: the backward pass makes states again. The
published kernel keeps them at every 2048th place too. It may add a bias to `dt`, and gate its output with silu(z): then
it keeps z and the output before the gate as well (mamba_ssm 2, `selective_scan_interface.py`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, ClassVar

from foretell.model.operator import Need, Operator, OperatorPart, Sizes, Widths
from foretell.units import Quantity, ceil_log2

if TYPE_CHECKING:
    from foretell.model.build import Builder, Value


class SelectiveScan(Operator, frozen=True, tag="selective_scan"):
    """y[t] = c[t] h[t] + d x[t], where h[t] = exp(a dt[t]) h[t-1] + dt[t] b[t] x[t], for each channel.

    `dt` goes through a softplus first, with a bias or none; `b` and `c` are those of all channels.
    """

    spans: ClassVar[dict[str, tuple[str, ...]]] = {
        "x": ("sample", "sequence", "channel"),
        "dt": ("sample", "sequence", "channel"),
        "b": ("sample", "sequence", "state"),
        "c": ("sample", "sequence", "state"),
        "z": ("sample", "sequence", "channel"),
        "a": ("channel", "state"),
        "d": ("channel",),
        "bias": ("channel",),
        "y": ("sample", "sequence", "channel"),
    }
    weight_operands: ClassVar[tuple[str, ...]] = ("a", "d", "bias")

    def states(self, n: Sizes) -> Quantity:
        """Numbers of all states."""
        return n["sample"] * n["sequence"] * n["channel"] * n["state"]

    def _ungated(self, width: Widths) -> tuple[str, ...]:
        """One more pass over an output: before the gate it is written, and read on the way back."""
        return ("y",) if "z" in width else ()

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        """Nine operations a number of a state, as its authors count (an exponential is one)."""
        states, read = self.states(n), self.bytes_of(self.inputs(), n, width)
        written = self.bytes_of(("y", *self._ungated(width)), n, width)
        depth = n["sequence"] + ceil_log2(n["state"])
        return OperatorPart(0, 9 * states, read, written, 1, 1, states, depth)

    def input_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        states, inputs = self.states(n), self.bytes_of(("x", "dt", "b", "c", "z"), n, width)
        read = inputs + self.bytes_of(("y", *self._ungated(width), *self.weight_operands), n, width)
        depth = 2 * n["sequence"]
        return OperatorPart(0, 22 * states, read, inputs, 1, 1, states, depth)

    def weight_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        """Sums in the same kernel."""
        states, written = self.states(n), self.bytes_of(self.weight_operands, n, width)
        return OperatorPart(0, 3 * states, 0, written, 1, 1, states, ceil_log2(n["sample"] * n["sequence"]))

    def keeps(self, needs: Collection[str]) -> tuple[str, ...]:
        return ("x", "dt", "b", "c", *(("z", "ungated") if "z" in needs else ()))

    def extras(self) -> dict[str, tuple[tuple[str, ...], str]]:
        return {"ungated": (self.spans["y"], "same")}

    def need(self, loop: str) -> Need:
        return {"sequence": Need.SEQUENTIAL, "state": Need.SUM}.get(loop, Need.NOTHING)


def selective_scan(g: Builder, x: Value, dt: Value, b: Value, c: Value) -> Value:
    """x[sample, sequence, channel] scanned by b and c[sample, sequence, state]."""
    sample, sequence, channel = x.dims
    state = b.dims[-1:]
    loops = {"sample": (sample,), "sequence": (sequence,), "channel": (channel,), "state": state}
    a, d = g.parameter("decay", (channel, *state)), g.parameter("skip", (channel,))
    return g.apply(SelectiveScan(), loops, {"x": x, "dt": dt, "b": b, "c": c, "a": a, "d": d}, x.dims)
