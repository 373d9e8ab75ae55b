"""AlexNet: five convolutions and three dense layers, on one device or as its original two towers."""

from __future__ import annotations

from typing import ClassVar

from foretell.errors import BadInput
from foretell.model.build import Builder, Value, dims
from foretell.model.family import Count, Family, Rate
from foretell.model.operators.convolution import convolution
from foretell.model.operators.dropout import dropout
from foretell.model.operators.elementwise import activation, combine
from foretell.model.operators.layout import pad, view
from foretell.model.operators.matmul import linear
from foretell.model.operators.pooling import adaptive_average_pool, pool
from foretell.model.zoo import _task as task

KERNELS = (11, 5, 3, 3, 3)
NORMED = (0, 1)
"""Convolutions that local response norm follows, where there is one."""

POOLED = (0, 1, 4)
"""Convolutions that max pooling follows."""


class Alexnet(Family, frozen=True, kw_only=True):
    """`filters` of each convolution; `groups` splits those that stayed on one tower (2, 4, 5)."""

    references: ClassVar[tuple[str, ...]] = (
        "Krizhevsky 2014, arXiv 1404.5997 (one tower)",
        "Krizhevsky, Sutskever, Hinton 2012, doi 10.1145/3065386 (two towers)",
    )

    filters: tuple[Count, Count, Count, Count, Count] = (64, 192, 384, 256, 256)
    groups: Count = 1
    norm: bool = False
    image: Count = 224
    classes: Count = 1000
    dropout: Rate = 0.5

    def check(self) -> None:
        if any(count % self.groups for count in self.filters):
            fix = "groups=1, or groups=2 as in the paper"
            raise BadInput(f"{self.groups} groups do not divide {self.filters} filters", fix=fix)

    def groups_of(self, layer: int) -> int:
        """How many groups the channels of this convolution (from 0) stay in."""
        return self.groups if layer in (1, 3, 4) else 1

    def build(self, g: Builder, batch: int) -> None:
        x = self._features(g, task.images(g, batch, self.image))
        with g.scope("avgpool"):
            x = adaptive_average_pool(g, x, 6)
        x = view(g, x, dims(sample=batch, feature=self.filters[-1] * 6 * 6))
        for layer in (0, 3):
            with g.scope(f"classifier.{layer}"):
                x = dropout(g, x, self.dropout)
            with g.scope(f"classifier.{layer + 1}"):
                x = linear(g, x, dims(feature=4096))
            with g.scope(f"classifier.{layer + 2}"):
                x = activation(g, x, "relu", inplace=True)
        with g.scope("classifier.6"):
            x = linear(g, x, dims(class_=self.classes))
        task.class_loss(g, x)

    def _features(self, g: Builder, x: Value) -> Value:
        at = 0
        for layer, (filters, kernel) in enumerate(zip(self.filters, KERNELS, strict=True)):
            stride, padding = (4, 2) if layer == 0 else (1, kernel // 2)
            with g.scope(f"features.{at}"):
                x = convolution(g, x, filters, kernel, stride=stride, padding=padding, groups=self.groups_of(layer))
            with g.scope(f"features.{at + 1}"):
                x = activation(g, x, "relu", inplace=True)
            at += 2
            if self.norm and layer in NORMED:
                with g.scope(f"features.{at}"):
                    x = _local_response_norm(g, x, 5)
                at += 1
            if layer in POOLED:
                with g.scope(f"features.{at}"):
                    x = pool(g, x, "max", 3, stride=2)
                at += 1
        return x


def _local_response_norm(g: Builder, x: Value, channels: int) -> Value:
    """x / (k + alpha * mean of squares over neighbouring channels)^beta, step by step as PyTorch does it."""
    sample, channel, height, width = x.dims
    lined_up = dims(sample=sample.size, channel=1, depth=channel.size, height=height.size, width=width.size)
    padded = dims(**{dim.name: dim.size + (channels - 1 if dim.name == "depth" else 0) for dim in lined_up})
    squares = pad(g, view(g, combine(g, x, x, "multiply"), lined_up), padded)
    means = view(g, pool(g, squares, "average", (channels, 1, 1), stride=1), x.dims)
    base = activation(g, activation(g, means, "scale"), "scale")  # times alpha, plus k
    return combine(g, x, activation(g, base, "pow"), "divide")


PRESETS = {
    "alexnet": Alexnet(),
    "alexnet-grouped": Alexnet(filters=(96, 256, 384, 384, 256), groups=2, norm=True),
}
