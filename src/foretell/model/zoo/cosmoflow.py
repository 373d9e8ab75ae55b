"""CosmoFlow: 3-D convolutions that read cosmological parameters off a box of simulated dark matter.

cosmoflow128    the reference network of MLPerf HPC (mlcommons/hpc, cosmoflow): five 3x3x3 convolutions of
                32 to 512 filters, each with leaky ReLU and max pooling, then dense layers of 128, 64 and 4
cosmoflow256    the same for larger boxes, as LBANN's CosmoFlow (of Oyama et al.) does with its `mlperf` widths:
cosmoflow512    one more convolution for each doubling, so that 4x4x4 voxels are left, with 512 filters at most
"""

from __future__ import annotations

from typing import ClassVar

from foretell.errors import BadInput
from foretell.model.build import Builder, Value, dims
from foretell.model.family import Count, Family, Index, Rate
from foretell.model.operators.convolution import convolution
from foretell.model.operators.dropout import dropout
from foretell.model.operators.elementwise import activation, cast
from foretell.model.operators.layout import view
from foretell.model.operators.matmul import linear
from foretell.model.operators.pooling import pool
from foretell.model.operators.squared_error import squared_error

DENSE = (128, 64)


class Cosmoflow(Family, frozen=True, kw_only=True):
    """`layers` convolutions (0: as many as leave 4x4x4 voxels) of `width` filters, doubling to `widest`."""

    references: ClassVar[tuple[str, ...]] = (
        "Mathuriya et al. 2018, arXiv 1808.04728",
        "Farrell et al. 2021, arXiv 2110.11466 (MLPerf HPC)",
        "Oyama et al. 2020, arXiv 2007.12856 (256 and 512 voxels wide)",
    )

    image: Count = 128
    channels: Count = 4
    outputs: Count = 4
    layers: Index = 0
    width: Count = 32
    widest: Count = 512
    dropout: Rate = 0.5

    def check(self) -> None:
        halvings = self.image.bit_length() - 1
        if not 1 <= max(1, self.layers) <= halvings:
            what = f"an image of {self.image} can be halved {halvings} times, not {max(1, self.layers)}"
            raise BadInput(what, fix=f"layers={halvings} or fewer" if halvings else "a larger image")

    def filters(self) -> list[int]:
        """Filters of each convolution."""
        layers = self.layers or max(1, self.image.bit_length() - 3)
        return [min(self.width * 2 ** min(at, 64), self.widest) for at in range(layers)]

    def features(self) -> int:
        """What is left after the last pooling, over all filters."""
        filters = self.filters()
        return filters[-1] * (self.image // 2 ** len(filters)) ** 3

    def build(self, g: Builder, batch: int) -> None:
        x = g.input(
            "image", dims(sample=batch, channel=self.channels, depth=self.image, height=self.image, width=self.image)
        )
        for at, filters in enumerate(self.filters()):
            with g.scope(f"layers.{at}.conv"):
                x = convolution(g, x, filters, 3, padding=1)
            with g.scope(f"layers.{at}.relu"):
                x = activation(g, x, "leaky_relu", inplace=True)
            with g.scope(f"layers.{at}.pool"):
                x = pool(g, x, "max", 2)
        x = view(g, x, dims(sample=batch, feature=self.features()))
        for at, width in enumerate(DENSE):
            x = self._dense(g, x, at, width)
        with g.scope("head"):
            x = linear(g, x, dims(feature=self.outputs))
        x = activation(g, activation(g, x, "tanh"), "scale")
        with g.scope("loss"):
            squared_error(g, cast(g, x, "fp32"), g.input("target", x.dims, "fp32"))

    def _dense(self, g: Builder, x: Value, at: int, width: int) -> Value:
        with g.scope(f"dense.{at}.linear"):
            x = linear(g, x, dims(feature=width))
        with g.scope(f"dense.{at}.relu"):
            x = activation(g, x, "leaky_relu", inplace=True)
        with g.scope(f"dense.{at}.dropout"):
            return dropout(g, x, self.dropout)


PRESETS = {
    "cosmoflow": Cosmoflow(),
    "cosmoflow128": Cosmoflow(image=128),
    "cosmoflow256": Cosmoflow(image=256),
    "cosmoflow512": Cosmoflow(image=512),
}
