"""U-Net in two and three dims: a path down, a path up, and skips that cross between their levels.

Convolutions keep the size (the paper's shrink it at every border), so images divide evenly by the levels.

unet-original    Ronneberger et al.: 1 channel, 2 classes, 64 filters doubling over 5 levels
unet3d-mlperf    MLPerf Training's 3D U-Net (KiTS19): filters 32 64 128 256 320 320, strided, instance norm
"""

from __future__ import annotations

from typing import ClassVar, Literal

from foretell.errors import BadInput
from foretell.model.build import Builder, Value, dims
from foretell.model.dims import Dim
from foretell.model.family import Count, Family, Index
from foretell.model.operators.convolution import SPACE, convolution
from foretell.model.operators.elementwise import activation
from foretell.model.operators.layout import concatenate, view
from foretell.model.operators.normalization import batch_norm, group_norm, instance_norm
from foretell.model.operators.pooling import pool
from foretell.model.operators.resampling import upsample
from foretell.model.zoo import _task as task


class Unet(Family, frozen=True, kw_only=True):
    """`levels` of two convolutions, `width` filters in the first, twice as many in each next one.

    `widest` caps the filters (0: no cap). Down by max pooling or a strided convolution, up by a
    transposed convolution or by interpolation and a 3x3 convolution (in 3-D bilinear is trilinear).
    """

    references: ClassVar[tuple[str, ...]] = (
        "Ronneberger, Fischer, Brox 2015, arXiv 1505.04597",
        "Cicek et al. 2016, arXiv 1606.06650 (3-D)",
        "Isensee et al. 2018, arXiv 1809.10483 (the MLPerf variant)",
    )

    dims: Literal[2, 3] = 2
    image: Count = 256
    channels: Count = 3
    classes: Count = 2
    width: Count = 64
    widest: Index = 0
    levels: Count = 5
    norm: Literal["none", "batch", "group", "instance"] = "none"
    groups: Count = 8
    down: Literal["pool", "strided"] = "pool"
    up: Literal["transposed", "bilinear", "nearest"] = "transposed"

    def check(self) -> None:
        halvings = (self.image & -self.image).bit_length() - 1
        if self.levels - 1 > halvings:
            what = f"an image of {self.image} can be halved {halvings} times, not {self.levels - 1}"
            raise BadInput(what, fix=f"levels={halvings + 1}, or an image that 2^{self.levels - 1} divides")
        uneven = [filters for filters in self.filters() if filters % self.groups]
        if self.norm == "group" and uneven:
            raise BadInput(f"{self.groups} groups do not divide {uneven[0]} filters", fix="groups=1, or another width")

    def filters(self) -> list[int]:
        """Filters of each level, the widest image first."""
        return [min(self.width * 2**at, self.widest or 10**9) for at in range(self.levels)]

    def build(self, g: Builder, batch: int) -> None:
        space = tuple(Dim(name, self.image) for name in SPACE[-self.dims :])
        x = g.input("image", (*dims(sample=batch, channel=self.channels), *space))
        skips: list[Value] = []
        for at, filters in enumerate(self.filters()):
            if at and self.down == "pool":
                with g.scope("pool"):
                    x = pool(g, x, "max", 2)
            with g.scope(f"encoder.{at}"):
                x = self._level(g, x, filters, 2 if at and self.down == "strided" else 1)
            skips.append(x)
        for at in range(self.levels - 2, -1, -1):
            with g.scope(f"up.{at}"):
                x = self._finer(g, x, self.filters()[at])
            x = concatenate(g, [skips[at], x], "channel")
            with g.scope(f"decoder.{at}"):
                x = self._level(g, x, self.filters()[at], 1)
        with g.scope("head"):
            x = convolution(g, x, self.classes, 1)
        x = view(g, x, (x.dims[0], *x.dims[2:], *dims(class_=self.classes)), "transpose")
        task.class_loss(g, x)

    def _level(self, g: Builder, x: Value, filters: int, stride: int) -> Value:
        for name, step in (("first", stride), ("second", 1)):
            with g.scope(f"{name}.conv"):
                x = convolution(g, x, filters, 3, stride=step, padding=1, bias=self.norm == "none")
            with g.scope(f"{name}.norm"):
                x = self._normed(g, x)
            with g.scope(f"{name}.relu"):
                # PyTorch's instance norm gives a view; changing a view in place costs copies
                x = activation(g, x, "relu", inplace=self.norm != "instance")
        return x

    def _normed(self, g: Builder, x: Value) -> Value:
        if self.norm == "batch":
            return batch_norm(g, x)
        if self.norm == "group":
            return group_norm(g, x, self.groups)
        return instance_norm(g, x) if self.norm == "instance" else x

    def _finer(self, g: Builder, x: Value, filters: int) -> Value:
        if self.up == "transposed":
            return convolution(g, x, filters, 2, stride=2, transposed=True)
        with g.scope("upsample"):
            x = upsample(g, x, 2, "nearest" if self.up == "nearest" else "linear")
        with g.scope("conv"):
            return convolution(g, x, filters, 3, padding=1)


_KIDNEYS = Unet(
    dims=3, image=128, channels=1, classes=3, width=32, widest=320, levels=6, norm="instance", down="strided"
)

PRESETS = {
    "unet": Unet(),
    "unet2d": Unet(),
    "unet3d": Unet(dims=3, image=128, channels=1, classes=3, width=32, levels=4, norm="batch"),
    "unet-original": Unet(image=512, channels=1),
    "unet3d-mlperf": _KIDNEYS,
}
