"""IResNet, the ResNet that faces are told apart with: norms before convolutions, slopes that are trained, a long head.

The head is a matrix with a row for each person, as wide as the embedding. ArcFace's margin and the norms of rows and
embeddings, which are small beside the product, are left out.
"""

from __future__ import annotations

from typing import ClassVar

from foretell.errors import BadInput
from foretell.model.build import Builder, Value, dims
from foretell.model.family import Count, Family
from foretell.model.operators.broadcast import broadcast
from foretell.model.operators.convolution import convolution
from foretell.model.operators.elementwise import combine
from foretell.model.operators.layout import view
from foretell.model.operators.matmul import linear
from foretell.model.operators.normalization import batch_norm
from foretell.model.zoo import _task as task

STAGES = (64, 128, 256, 512)
"""Filters of the four stages; each begins with a stride of two."""

HALVED = 2 ** len(STAGES)


class Iresnet(Family, frozen=True, kw_only=True):
    """Four stages of `blocks` of two 3x3 convolutions; an embedding of `embedding`; `classes` persons."""

    references: ClassVar[tuple[str, ...]] = (
        "Deng, Guo, Xue, Zafeiriou 2019, arXiv 1801.07698 (ArcFace)",
        "deepinsight/insightface, recognition/arcface_torch/backbones/iresnet.py",
    )

    blocks: tuple[Count, Count, Count, Count] = (3, 13, 30, 3)
    embedding: Count = 512
    image: Count = 112
    classes: Count = 85_742

    def check(self) -> None:
        if self.image % HALVED:
            nearest = max(HALVED, round(self.image / HALVED) * HALVED)
            raise BadInput(f"image={self.image} cannot be halved four times", fix=f"image={nearest}")

    def build(self, g: Builder, batch: int) -> None:
        x = task.images(g, batch, self.image)
        with g.scope("conv1"):
            x = convolution(g, x, STAGES[0], 3, padding=1, bias=False)
        x = _slopes(g, _norm(g, x, "bn1"), "prelu")
        for stage, (filters, count) in enumerate(zip(STAGES, self.blocks, strict=True), 1):
            for block in range(count):
                with g.scope(f"layer{stage}.{block}"):
                    x = _block(g, x, filters, 1 if block else 2)
        x = _norm(g, x, "bn2")
        side = self.image // HALVED
        x = view(g, x, dims(sample=batch, feature=STAGES[-1] * side * side))
        with g.scope("fc"):
            x = linear(g, x, dims(hidden=self.embedding))
        x = _norm(g, x, "features")
        with g.scope("head"):
            x = linear(g, x, dims(class_=self.classes), bias=False)
        task.class_loss(g, x)


def _norm(g: Builder, x: Value, name: str) -> Value:
    with g.scope(name):
        return batch_norm(g, x)


def _slopes(g: Builder, x: Value, name: str) -> Value:
    """A slope for each channel where it is negative."""
    with g.scope(name):
        return broadcast(g, x, g.parameter("weight", (x.dim("channel"),)), "prelu", weight=True)


def _block(g: Builder, x: Value, filters: int, stride: int) -> Value:
    y = _norm(g, x, "bn1")
    with g.scope("conv1"):
        y = convolution(g, y, filters, 3, padding=1, bias=False)
    y = _slopes(g, _norm(g, y, "bn2"), "prelu")
    with g.scope("conv2"):
        y = convolution(g, y, filters, 3, stride=stride, padding=1, bias=False)
    y = _norm(g, y, "bn3")
    if stride > 1:
        with g.scope("downsample.0"):
            x = convolution(g, x, filters, 1, stride=stride, bias=False)
        x = _norm(g, x, "downsample.1")
    return combine(g, y, x, inplace=True)


PRESETS = {
    "iresnet": Iresnet(),
    "iresnet18": Iresnet(blocks=(2, 2, 2, 2)),
    "iresnet34": Iresnet(blocks=(3, 4, 6, 3)),
    "iresnet50": Iresnet(blocks=(3, 4, 14, 3)),
    "iresnet100": Iresnet(),
    "iresnet200": Iresnet(blocks=(6, 26, 60, 6)),
}
