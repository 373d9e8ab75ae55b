"""EfficientDet: EfficientNet's features at several sizes, mixed up and down, and heads that all sizes share.

What decides is as in PyTorch's best-known version (rwightman/efficientdet-pytorch, tf_efficientdet_*): biases before
norms, and norms of each size their own. That the weights of a mixture add up to one is left out: they are two or three
numbers. The loss is cross-entropy over classes and the squared error of boxes.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from foretell.errors import BadInput
from foretell.model.build import Builder, Value, dims
from foretell.model.dims import Dim
from foretell.model.family import Count, Family
from foretell.model.operators.broadcast import broadcast
from foretell.model.operators.convolution import Convolution, convolution
from foretell.model.operators.elementwise import activation, combine
from foretell.model.operators.layout import concatenate, view
from foretell.model.operators.normalization import batch_norm
from foretell.model.operators.pooling import pool
from foretell.model.operators.resampling import upsample
from foretell.model.operators.squared_error import squared_error
from foretell.model.zoo import _task as task
from foretell.model.zoo._convolutional import conv_norm, inverted_residual
from foretell.model.zoo.efficientnet import Efficientnet, Scale

LEVELS = (3, 4, 5, 6, 7)
"""Features of level n have 2**n pixels a side for each place."""


class SharedConvolution(NamedTuple):
    """A convolution with a depthwise one before it, both used at every level."""

    depthwise: Value
    pointwise: Value
    bias: Value


class Efficientdet(Family, frozen=True, kw_only=True):
    """`mixtures` of features up and down in `width` channels, then heads of `depth` convolutions."""

    references: ClassVar[tuple[str, ...]] = ("Tan, Pang, Le 2020, arXiv 1911.09070",)

    wider: Scale = 1.0
    deeper: Scale = 1.0
    width: Count = 64
    mixtures: Count = 3
    depth: Count = 3
    image: Count = 512
    classes: Count = 90
    anchors: Count = 9

    def check(self) -> None:
        if self.image % 128:
            near = max(1, round(self.image / 128)) * 128
            raise BadInput(f"image={self.image} is not halved seven times", fix=f"image={near}")

    @property
    def backbone(self) -> Efficientnet:
        return Efficientnet(wider=self.wider, deeper=self.deeper, image=self.image)

    def tapped(self) -> dict[int, int]:
        """The last block of the backbone at each level that has one, by level."""
        level, found = 1, dict[int, int]()
        for at, block in enumerate(self.backbone.blocks()):
            level += block.stride > 1
            found[level] = at
        return {one: at for one, at in found.items() if one in LEVELS}

    def build(self, g: Builder, batch: int) -> None:
        features = self._features(g, task.images(g, batch, self.image))
        for at in range(self.mixtures):
            with g.scope(f"mixtures.{at}"):
                features = self._mixture(g, features)
        with g.scope("class_head"):
            classes = self._head(g, features, self.classes)
        with g.scope("box_head"):
            boxes = self._head(g, features, 4)
        wrong = task.class_loss(g, classes)
        combine(g, wrong, squared_error(g, boxes, g.input("boxes", boxes.dims)))

    def _features(self, g: Builder, x: Value) -> dict[int, Value]:
        backbone, tapped = self.backbone, self.tapped()
        x = conv_norm(g, x, "stem", backbone.stem(), 3, stride=2, function="silu")
        found: dict[int, Value] = {}
        for at, block in enumerate(backbone.blocks()):
            with g.scope(f"blocks.{at}"):
                x = inverted_residual(g, x, block)
            found |= {level: x for level, last in tapped.items() if last == at}
        found[6] = pool(g, self._narrowed(g, found[5], "narrowed"), "max", 3, stride=2, padding=1)
        found[7] = pool(g, found[6], "max", 3, stride=2, padding=1)
        return found

    def _narrowed(self, g: Builder, x: Value, name: str) -> Value:
        """To the width of the mixtures, each time that it is used."""
        if x.size("channel") == self.width:
            return x
        with g.scope(name):
            with g.scope("conv"):
                x = convolution(g, x, self.width, 1)
            with g.scope("norm"):
                return batch_norm(g, x)

    def _mixture(self, g: Builder, given: dict[int, Value]) -> dict[int, Value]:
        """Down from the coarsest, then up again."""
        down = {7: given[7]}
        for level in (6, 5, 4, 3):
            with g.scope(f"down.{level}"):
                own = self._narrowed(g, given[level], "narrowed")
                down[level] = self._mixed(g, [own, upsample(g, down[level + 1], 2)])
        found = {3: down[3]}
        for level in (4, 5, 6, 7):
            with g.scope(f"up.{level}"):
                own = [self._narrowed(g, given[level], "narrowed"), *([down[level]] if level < 7 else [])]
                found[level] = self._mixed(g, [*own, pool(g, found[level - 1], "max", 3, stride=2, padding=1)])
        return found

    def _mixed(self, g: Builder, parts: list[Value]) -> Value:
        shares = g.parameter("shares", dims(part=len(parts)))
        sums: Value | None = None
        for part in parts:
            weighed = broadcast(g, part, view(g, shares, dims(part=1), "slice"), "multiply")
            sums = combine(g, sums, weighed) if sums else weighed
        assert sums is not None
        x = activation(g, sums, "silu")
        with g.scope("conv"):
            x = self._separable(g, x, self._shared(g, self.width))
        with g.scope("norm"):
            return batch_norm(g, x)

    def _shared(self, g: Builder, filters: int) -> SharedConvolution:
        with g.scope("depthwise"):
            depthwise = g.parameter("weight", dims(filter=self.width, tap=1, kernel_height=3, kernel_width=3))
        with g.scope("pointwise"):
            pointwise = g.parameter("weight", dims(filter=filters, tap=self.width, kernel_height=1, kernel_width=1))
            return SharedConvolution(depthwise, pointwise, g.parameter("bias", dims(channel=filters)))

    def _separable(self, g: Builder, x: Value, weights: SharedConvolution) -> Value:
        x = _applied(g, x, weights.depthwise, None, self.width)
        return _applied(g, x, weights.pointwise, weights.bias, 1)

    def _head(self, g: Builder, features: dict[int, Value], values: int) -> Value:
        """Scores[sample, place, value] of all levels."""
        layers: list[SharedConvolution] = []
        for layer in range(self.depth):
            with g.scope(f"layers.{layer}"):
                layers.append(self._shared(g, self.width))
        with g.scope("last"):
            last = self._shared(g, self.anchors * values)
        found: list[Value] = []
        for level in LEVELS:
            x = features[level]
            for at, layer in enumerate(layers):
                x = self._separable(g, x, layer)
                with g.scope(f"norms.{level}.{at}"):
                    x = activation(g, batch_norm(g, x), "silu")
            x = self._separable(g, x, last)
            places = x.size("height") * x.size("width") * self.anchors
            x = view(g, x, (x.dims[0], *x.dims[2:], x.dims[1]), "transpose")
            found.append(view(g, x, (x.dims[0], Dim("place", places), Dim("class", values))))
        return concatenate(g, found, "place")


def _applied(g: Builder, x: Value, weight: Value, bias: Value | None, groups: int) -> Value:
    """A convolution that keeps the size, with weights that others may use too."""
    sample, channel, height, width = x.dims
    filters, kernel = weight.size("filter"), weight.size("kernel_height")
    inputs = {"x": x, "w": weight} | ({"b": bias} if bias else {})
    inner, outer = Dim("channel", channel.size // groups), Dim("channel", filters // groups)
    loops = {"sample": (sample,), "group": (Dim("group", groups),), "in": (inner,), "out": (outer,)}
    loops |= {"height": (height,), "width": (width,)}
    operator = Convolution((kernel, kernel), (1, 1), (kernel // 2,) * 2, (1, 1))
    return g.apply(operator, loops, inputs, (sample, Dim("channel", filters), height, width))


PRESETS = {
    "efficientdet": Efficientdet(),
    "efficientdet-d0": Efficientdet(),
    "efficientdet-d1": Efficientdet(deeper=1.1, width=88, mixtures=4, image=640),
    "efficientdet-d2": Efficientdet(wider=1.1, deeper=1.2, width=112, mixtures=5, image=768),
    "efficientdet-d3": Efficientdet(wider=1.2, deeper=1.4, width=160, mixtures=6, depth=4, image=896),
    "efficientdet-d4": Efficientdet(wider=1.4, deeper=1.8, width=224, mixtures=7, depth=4, image=1024),
}
