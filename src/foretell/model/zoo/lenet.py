"""LeNet-5: two convolutions with subsampling, three dense layers; it read the digits on cheques."""

from __future__ import annotations

from typing import ClassVar

from foretell.model.build import Builder, dims
from foretell.model.family import Count, Family
from foretell.model.operators.convolution import convolution
from foretell.model.operators.elementwise import activation
from foretell.model.operators.layout import view
from foretell.model.operators.matmul import linear
from foretell.model.operators.pooling import pool
from foretell.model.zoo import _task as task


class Lenet(Family, frozen=True, kw_only=True):
    """Grey images of `image` pixels a side. The second convolution sees all maps of the first."""

    references: ClassVar[tuple[str, ...]] = ("LeCun, Bottou, Bengio, Haffner 1998, doi 10.1109/5.726791",)

    image: Count = 32
    classes: Count = 10

    def build(self, g: Builder, batch: int) -> None:
        x = task.images(g, batch, self.image, channels=1)
        for layer, filters in ((0, 6), (3, 16)):
            with g.scope(f"features.{layer}"):
                x = convolution(g, x, filters, 5)
            with g.scope(f"features.{layer + 1}"):
                x = activation(g, x, "tanh")
            with g.scope(f"features.{layer + 2}"):
                x = pool(g, x, "average", 2)
        x = view(g, x, dims(sample=batch, feature=16 * x.size("height") ** 2))
        for layer, width in ((0, 120), (2, 84)):
            with g.scope(f"classifier.{layer}"):
                x = linear(g, x, dims(feature=width))
            with g.scope(f"classifier.{layer + 1}"):
                x = activation(g, x, "tanh")
        with g.scope("classifier.4"):
            x = linear(g, x, dims(class_=self.classes))
        task.class_loss(g, x)


PRESETS = {"lenet": Lenet(), "lenet5": Lenet()}
