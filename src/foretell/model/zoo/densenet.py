"""DenseNet: every layer sees the outputs of all layers before it in its block."""

from __future__ import annotations

from typing import ClassVar

from foretell.model.build import Builder, Value, dims
from foretell.model.family import Count, Family, Rate
from foretell.model.operators.convolution import convolution
from foretell.model.operators.dropout import dropout
from foretell.model.operators.elementwise import activation
from foretell.model.operators.layout import concatenate, view
from foretell.model.operators.matmul import linear
from foretell.model.operators.normalization import batch_norm
from foretell.model.operators.pooling import adaptive_average_pool, pool
from foretell.model.zoo import _task as task


class Densenet(Family, frozen=True, kw_only=True):
    """Four blocks with `layers` layers each; a layer adds `growth` channels to what it was given.

    The stem has `filters` channels, and each layer first narrows to `bottleneck` * `growth`.
    """

    references: ClassVar[tuple[str, ...]] = ("Huang, Liu, van der Maaten, Weinberger 2017, arXiv 1608.06993",)

    layers: tuple[Count, Count, Count, Count] = (6, 12, 24, 16)
    growth: Count = 32
    filters: Count = 64
    bottleneck: Count = 4
    image: Count = 224
    classes: Count = 1000
    dropout: Rate = 0.0

    def build(self, g: Builder, batch: int) -> None:
        x = task.images(g, batch, self.image)
        with g.scope("stem.conv"):
            x = convolution(g, x, self.filters, 7, stride=2, padding=3, bias=False)
        x = _norm_relu(g, x, "stem.norm", "stem.relu")
        with g.scope("stem.pool"):
            x = pool(g, x, "max", 3, stride=2, padding=1)
        for block, count in enumerate(self.layers):
            for layer in range(count):
                with g.scope(f"blocks.{block}.{layer}"):
                    x = self._layer(g, x)
            if block < 3:
                with g.scope(f"transitions.{block}"):
                    x = _transition(g, x)
        x = _norm_relu(g, x, "norm", "relu")
        with g.scope("avgpool"):
            x = adaptive_average_pool(g, x, 1)
        x = view(g, x, dims(sample=batch, feature=x.size("channel")))
        with g.scope("classifier"):
            x = linear(g, x, dims(class_=self.classes))
        task.class_loss(g, x)

    def _layer(self, g: Builder, x: Value) -> Value:
        new = _norm_relu(g, x, "norm1", "relu1")
        with g.scope("conv1"):
            new = convolution(g, new, self.bottleneck * self.growth, 1, bias=False)
        new = _norm_relu(g, new, "norm2", "relu2")
        with g.scope("conv2"):
            new = convolution(g, new, self.growth, 3, padding=1, bias=False)
        with g.scope("dropout"):
            new = dropout(g, new, self.dropout)
        return concatenate(g, [x, new], "channel")


def _transition(g: Builder, x: Value) -> Value:
    """Half the channels, half the height and width."""
    x = _norm_relu(g, x, "norm", "relu")
    with g.scope("conv"):
        x = convolution(g, x, x.size("channel") // 2, 1, bias=False)
    with g.scope("pool"):
        return pool(g, x, "average", 2)


def _norm_relu(g: Builder, x: Value, norm: str, relu: str) -> Value:
    with g.scope(norm):
        x = batch_norm(g, x)
    with g.scope(relu):
        return activation(g, x, "relu", inplace=True)


PRESETS = {
    "densenet": Densenet(),
    "densenet121": Densenet(layers=(6, 12, 24, 16)),
    "densenet161": Densenet(layers=(6, 12, 36, 24), growth=48, filters=96),
    "densenet169": Densenet(layers=(6, 12, 32, 32)),
    "densenet201": Densenet(layers=(6, 12, 48, 32)),
}
