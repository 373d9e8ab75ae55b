"""Jamba: scans of Mamba's first version with a layer of attention among eight, and experts in every second layer.

Layers that attend are told no positions. Steps, keys and queries of scans have norms of their own.
"""

from __future__ import annotations

from typing import ClassVar

from foretell.errors import BadInput
from foretell.model.build import Builder, Value, dims
from foretell.model.family import Count, Index
from foretell.model.operators.elementwise import activation, combine
from foretell.model.operators.layout import split
from foretell.model.operators.matmul import linear
from foretell.model.operators.normalization import rms_norm
from foretell.model.operators.scan import short_convolution
from foretell.model.operators.selective_scan import selective_scan
from foretell.model.zoo._decoder import LayerContext
from foretell.model.zoo.mixture import Mixture


class Jamba(Mixture, frozen=True, kw_only=True):
    """Of every `period` layers the one at `offset` attends; the others scan `expand` times the hidden features.

    `rank` is the width through which steps are made (0: a sixteenth of the hidden features).
    """

    references: ClassVar[tuple[str, ...]] = (
        "Lieber et al. 2024 (Jamba), arXiv 2403.19887",
        "Gu, Dao 2023 (Mamba), arXiv 2312.00752",
    )

    layers: Count = 32
    hidden: Count = 4096
    heads: Count = 32
    kv_heads: Index = 8
    ffn: Index = 14336
    vocab: Count = 65536
    seq: Count = 4096
    experts: Count = 16
    top_k: Count = 2
    normalized: bool = False
    every: Count = 2
    dense_ffn: Index = 14336
    period: Count = 8
    offset: Index = 4
    expand: Count = 2
    state: Count = 16
    rank: Index = 0
    taps: Count = 4

    def check(self) -> None:
        super().check()
        if self.offset >= self.period:
            raise BadInput(f"offset={self.offset} of period={self.period}", fix=f"offset={self.period - 1}")

    @property
    def steps(self) -> int:
        """Features through which steps are made."""
        return self.rank or -(-self.hidden // 16)

    def attends(self, layer: int) -> bool:
        """Whether this layer attends; the others scan."""
        return layer % self.period == self.offset

    def turns(self, layer: int) -> bool:
        return False

    def context(self, g: Builder) -> LayerContext:
        return super().context(g)._replace(angles=None) if self.masked else LayerContext()

    def attend(self, g: Builder, x: Value, context: LayerContext, layer: int) -> Value:
        if self.attends(layer):
            return super().attend(g, x, context, layer)
        inner = self.expand * self.hidden
        with g.scope("input"):
            both = linear(g, x, dims(channel=2 * inner), bias=False)
        mixed, gate = split(g, both, "channel", (inner, inner))
        with g.scope("convolution"):
            mixed = activation(g, short_convolution(g, mixed, self.taps), "silu")
        with g.scope("parts"):
            parts = linear(g, mixed, dims(part=self.steps + 2 * self.state), bias=False)
        normed: list[Value] = []
        cut = split(g, parts, "part", (self.steps, self.state, self.state))
        for name, part in zip(("step", "key", "query"), cut, strict=True):
            with g.scope(f"{name}_norm"):
                normed.append(rms_norm(g, part))
        with g.scope("steps"):
            dt = linear(g, normed[0], dims(channel=inner))
        with g.scope("scan"):
            y = selective_scan(g, mixed, dt, normed[1], normed[2])
        y = combine(g, y, activation(g, gate, "silu"), "multiply")
        with g.scope("output"):
            return linear(g, y, x.dims[-1:], bias=False)


PRESETS = {
    "jamba": Jamba(),
    "jamba-v0.1": Jamba(),
    "jamba-1.5-large": Jamba(layers=72, hidden=8192, heads=64, ffn=24576, dense_ffn=24576),
}
