"""VGG: stacks of 3x3 convolutions, halved by pooling, and three dense layers."""

from __future__ import annotations

from typing import ClassVar

from foretell.model.build import Builder, dims
from foretell.model.family import Count, Family, Rate
from foretell.model.operators.convolution import convolution
from foretell.model.operators.cross_entropy import cross_entropy
from foretell.model.operators.dropout import dropout
from foretell.model.operators.elementwise import activation
from foretell.model.operators.layout import view
from foretell.model.operators.matmul import linear
from foretell.model.operators.normalization import batch_norm
from foretell.model.operators.pooling import adaptive_average_pool, pool


class Vgg(Family, frozen=True, kw_only=True):
    """Five groups of `convolutions`, so many each, with `width` filters in the first and up to eight times as many.

    The image is pooled to a square of `pooled`, and read by two layers of `dense` features and one of classes.
    """

    references: ClassVar[tuple[str, ...]] = ("Simonyan, Zisserman 2015, arXiv 1409.1556",)

    convolutions: tuple[Count, Count, Count, Count, Count] = (2, 2, 3, 3, 3)
    image: Count = 224
    classes: Count = 1000
    norm: bool = False
    dropout: Rate = 0.5
    width: Count = 64
    pooled: Count = 7
    dense: Count = 4096

    @property
    def filters(self) -> tuple[int, ...]:
        """Of each group."""
        return tuple(self.width * times for times in (1, 2, 4, 8, 8))

    def build(self, g: Builder, batch: int) -> None:
        x = g.input("image", dims(sample=batch, channel=3, height=self.image, width=self.image))
        at = 0
        for count, filters in zip(self.convolutions, self.filters, strict=True):
            for _ in range(count):
                with g.scope(f"features.{at}"):
                    x = convolution(g, x, filters, 3, padding=1)
                if self.norm:
                    with g.scope(f"features.{at + 1}"):
                        x = batch_norm(g, x)
                at += 2 if self.norm else 1
                with g.scope(f"features.{at}"):
                    x = activation(g, x, "relu", inplace=True)
                at += 1
            with g.scope(f"features.{at}"):
                x = pool(g, x, "max", 2)
            at += 1
        with g.scope("avgpool"):
            x = adaptive_average_pool(g, x, self.pooled)
        x = view(g, x, dims(sample=batch, feature=self.filters[-1] * self.pooled**2))
        for layer, width in ((0, self.dense), (3, self.dense)):
            with g.scope(f"classifier.{layer}"):
                x = linear(g, x, dims(feature=width))
            with g.scope(f"classifier.{layer + 1}"):
                x = activation(g, x, "relu", inplace=True)
            with g.scope(f"classifier.{layer + 2}"):
                x = dropout(g, x, self.dropout)
        with g.scope("classifier.6"):
            x = linear(g, x, dims(class_=self.classes))
        with g.scope("loss"):
            cross_entropy(g, x, g.input("target", dims(sample=batch), "int64"))


PRESETS = {
    "vgg": Vgg(),
    "vgg11": Vgg(convolutions=(1, 1, 2, 2, 2)),
    "vgg13": Vgg(convolutions=(2, 2, 2, 2, 2)),
    "vgg16": Vgg(convolutions=(2, 2, 3, 3, 3)),
    "vgg19": Vgg(convolutions=(2, 2, 4, 4, 4)),
    "vgg16-bn": Vgg(convolutions=(2, 2, 3, 3, 3), norm=True),
}
