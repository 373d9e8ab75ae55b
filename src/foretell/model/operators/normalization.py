"""Normalisation: layer, RMS, batch, group and instance norm as one loop nest.

Every member of a `group` shares one mean and one variance. Layer norm has a group per token and
the features as members; batch norm a group per channel and samples and positions as members.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from foretell.model.dims import Dim, Dims
from foretell.model.operator import Need, Operator, OperatorPart, Sizes, Widths
from foretell.units import ceil_log2

if TYPE_CHECKING:
    from foretell.model.build import Builder, Value


RUNNING = "running"

WRITTEN = "written"
"""An RMS norm of tokens without a weight, as a module writes it out: each line is a kernel, and goes through memory."""


class NormLines(NamedTuple):
    """Kernels of such a norm, and how often they read and write tensors of its input's size in its input's width."""

    kernels: int
    reads: int
    writes: int


FORWARD = NormLines(6, 4, 2)
"""Squares, their mean, a sum, its root, the product, and the cast that reads it."""

BACKWARD = NormLines(12, 10, 8)
"""The cast, the product's two gradients and the sum of one, a root's in three, a mean's spread out, a square's in
three, and the sum of both (PyTorch 2.13, tools/autograd/derivatives.yaml: mul, rsqrt, mean, pow)."""


class Normalize(Operator, frozen=True, tag="normalize"):
    """y = (x - mean) / deviation * w + b, with statistics over the members of each group."""

    kind: str  # layer, rms, batch, group, instance, running (batch norm by its running averages), written

    spans: ClassVar[dict[str, tuple[str, ...]]] = {
        "x": ("group", "member"),
        "w": ("affine",),
        "b": ("affine",),
        "y": ("group", "member"),
    }

    def _passes(self) -> int:
        """How often x is read: the members of a channel do not fit in cache, those of a token do."""
        return 2 if self.kind in ("batch", "instance") else 1

    @property
    def priced_as(self) -> str:
        return "elementwise" if self.kind == RUNNING else super().priced_as  # nothing is summed up

    def evaluated(self) -> Operator:
        return Normalize(RUNNING) if self.kind == "batch" else self

    def forward(self, n: Sizes, width: Widths) -> OperatorPart:
        x = self.elements("x", n)
        if self.kind == RUNNING:
            read = x * width["x"] + self.bytes_of(("w", "b"), n, width)
            return OperatorPart(0, 4 * x, read, x * width["y"], 1, 0, x, 1)
        if self.kind == WRITTEN:
            read, written = FORWARD.reads * x * width["x"], FORWARD.writes * x * width["x"] + x * width["y"]
            return OperatorPart(0, 4 * x, read, written, FORWARD.kernels, 1, x, ceil_log2(n["member"]))
        flops = (4 if self.kind == "rms" else 7) * x
        passes = self._passes()
        read = passes * x * width["x"] + self.bytes_of(("w", "b"), n, width)
        launches = 2 if self.kind == "batch" else 1  # the module counts its batches in a tensor
        return OperatorPart(0, flops, read, x * width["y"], launches, self._kernels(), x, ceil_log2(n["member"]))

    def _kernels(self) -> int:
        """Kernels of compiled code: where members are spread over all samples, sums of parts, their sum, and the rest.

        Of ResNet-50 and ResNet-101 on an H200 the backward passes of 53 and 104 norms have 84 and 108 sums and one
        kernel each besides (studies/h200_steps/compiled.jsonl and phases.jsonl).
        """
        return self._passes() + 1 if self._passes() > 1 else 1

    def input_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        x = self.elements("x", n)
        if self.kind == WRITTEN:
            read, written = BACKWARD.reads * x * width["x"] + x * width["y"], BACKWARD.writes * x * width["x"]
            return OperatorPart(0, 9 * x, read, written, BACKWARD.kernels, 1, x, ceil_log2(n["member"]))
        passes = self._passes()
        read = passes * x * (width["x"] + width["y"])
        return OperatorPart(0, 9 * x, read, x * width["x"], 1, self._kernels(), x, ceil_log2(n["member"]))

    def weight_gradient(self, n: Sizes, width: Widths) -> OperatorPart:
        x = self.elements("x", n)
        written = self.bytes_of(("w", "b"), n, width)
        if self._passes() > 1:  # the input gradient needs the same sums: one kernel does both
            return OperatorPart(0, 2 * x, 0, written, 0, 0, x, ceil_log2(n["member"]))
        read = x * (width["x"] + width["y"])
        return OperatorPart(0, 3 * x, read, written, 1, 1, x, ceil_log2(n["group"]))

    def keeps(self, needs: Collection[str]) -> tuple[str, ...]:
        kept = ("x", "rstd") if self.kind in ("rms", WRITTEN) else ("x", "mean", "rstd")
        # PyTorch runs instance norm as batch norm over samples * channels, with the weight repeated
        return (*kept, "repeated") if self.kind == "instance" and "w" in needs else kept

    def extras(self) -> dict[str, tuple[tuple[str, ...], str]]:
        return {"mean": (("group",), "fp32"), "rstd": (("group",), "fp32"), "repeated": (("group",), "same")}

    def statistics(self, loop: str) -> tuple[tuple[str, tuple[str, ...], int], ...]:
        if self.kind == RUNNING:
            return ()
        # sum and sum of squares; on the way back the sums of dy and of dy * x
        values = 1 if self.kind in ("rms", WRITTEN) else 2
        return (("forward", ("group",), values), ("backward", ("group",), values)) if loop == "member" else ()

    def need(self, loop: str) -> Need:
        return Need.STATISTICS if loop == "member" and self.kind != RUNNING else Need.NOTHING


def _normalize(g: Builder, x: Value, kind: str, group: Dims, member: Dims, affine: Dims, bias: bool) -> Value:
    inputs = {"x": x}
    if affine:
        inputs["w"] = g.parameter("weight", affine)
        if bias:
            inputs["b"] = g.parameter("bias", affine)
    loops = {"group": group, "member": member, "affine": affine}
    return g.apply(Normalize(kind), loops, inputs, x.dims)


def layer_norm(g: Builder, x: Value, *, over: int = 1, affine: bool = True, bias: bool = True) -> Value:
    """Statistics over the last `over` dims of each token."""
    group, member = x.dims[:-over], x.dims[-over:]
    return _normalize(g, x, "layer", group, member, member if affine else (), bias)


def rms_norm(g: Builder, x: Value, *, over: int = 1, affine: bool = True) -> Value:
    """Root-mean-square norm over the last `over` dims: no mean, no bias."""
    group, member = x.dims[:-over], x.dims[-over:]
    return _normalize(g, x, "rms", group, member, member if affine else (), bias=False)


def batch_norm(g: Builder, x: Value, *, affine: bool = True, channel: int = 1) -> Value:
    """Statistics over samples and positions of each channel, with running averages."""
    group = (x.dims[channel],)
    member = tuple(dim for at, dim in enumerate(x.dims) if at != channel)
    g.buffer("running_mean", group)
    g.buffer("running_var", group)
    g.buffer("num_batches_tracked", (), "int64")
    return _normalize(g, x, "batch", group, member, group if affine else (), bias=True)


def group_norm(g: Builder, x: Value, groups: int, *, affine: bool = True) -> Value:
    """Statistics over each sample's channels in `groups` groups."""
    sample, channel, *space = x.dims
    group = (sample, Dim("group", groups))
    member = (Dim(channel.name, channel.size // groups), *space)
    return _normalize(g, x, "group", group, member, (channel,) if affine else (), bias=True)


def instance_norm(g: Builder, x: Value, *, affine: bool = True) -> Value:
    """Statistics over the positions of each channel of each sample, without running averages."""
    sample, channel, *space = x.dims
    return _normalize(g, x, "instance", (sample, channel), tuple(space), (channel,) if affine else (), bias=True)
