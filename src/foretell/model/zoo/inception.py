"""Inception v3: blocks whose branches of convolutions of many shapes are laid side by side."""

from __future__ import annotations

from typing import ClassVar, NamedTuple, TypeAlias

from foretell.model.build import Builder, Value, dims
from foretell.model.family import Count, Family, Rate
from foretell.model.operators.convolution import convolution
from foretell.model.operators.dropout import dropout
from foretell.model.operators.elementwise import activation, combine
from foretell.model.operators.layout import concatenate, view
from foretell.model.operators.matmul import linear
from foretell.model.operators.normalization import batch_norm
from foretell.model.operators.pooling import adaptive_average_pool, pool
from foretell.model.zoo import _task as task


class Conv(NamedTuple):
    """A convolution without bias, its batch norm and a ReLU."""

    filters: int
    kernel: tuple[int, int]
    stride: int = 1
    padding: tuple[int, int] = (0, 0)


class PoolBranch(NamedTuple):
    """The maximum or average over a window."""

    function: str
    kernel: int
    stride: int
    padding: int = 0
    ceil: bool = False  # windows may begin inside and end outside


class Fork(NamedTuple):
    """Branches that all see the same input, and whose outputs are laid side by side."""

    branches: tuple[Sequence, ...]


Sequence: TypeAlias = tuple["Conv | PoolBranch | Fork", ...]


def same_size(filters: int, height: int, width: int | None = None) -> Conv:
    """A convolution that keeps the image's size."""
    kernel = (height, height if width is None else width)
    return Conv(filters, kernel, 1, (kernel[0] // 2, kernel[1] // 2))


def _halve(filters: int) -> Conv:
    return Conv(filters, (3, 3), 2)


_MAXIMUM = PoolBranch("max", 3, 2)
_AVERAGE = PoolBranch("average", 3, 1, 1)
_WIDE, _TALL = (1, 7), (7, 1)


def _small(pooled: int) -> Fork:
    """Branches of 1x1, 5x5 and twice 3x3 (Figure 5 of the paper)."""
    five = (same_size(48, 1), same_size(64, 5))
    double = (same_size(64, 1), same_size(96, 3), same_size(96, 3))
    return Fork(((same_size(64, 1),), five, double, (_AVERAGE, same_size(pooled, 1))))


def _factored(inner: int) -> Fork:
    """7x7 convolutions as 1x7 after 7x1 (Figure 6)."""
    once = (same_size(inner, 1), same_size(inner, *_WIDE), same_size(192, *_TALL))
    twice = tuple(same_size(inner, *shape) for shape in ((1, 1), _TALL, _WIDE, _TALL))
    return Fork(((same_size(192, 1),), once, (*twice, same_size(192, *_WIDE)), (_AVERAGE, same_size(192, 1))))


def _expanded() -> Fork:
    """3x3 convolutions as 1x3 beside 3x1 (Figure 7)."""
    beside = Fork(((same_size(384, 1, 3),), (same_size(384, 3, 1),)))
    double = (same_size(448, 1), same_size(384, 3), beside)
    return Fork(((same_size(320, 1),), (same_size(384, 1), beside), double, (_AVERAGE, same_size(192, 1))))


STEM: Sequence = (
    _halve(32),
    Conv(32, (3, 3)),
    same_size(64, 3),
    _MAXIMUM,
    same_size(80, 1),
    Conv(192, (3, 3)),
    _MAXIMUM,
)

BLOCKS: Sequence = (
    _small(32),
    _small(64),
    _small(64),
    Fork(((_halve(384),), (same_size(64, 1), same_size(96, 3), _halve(96)), (_MAXIMUM,))),
    _factored(128),
    _factored(160),
    _factored(160),
    _factored(192),
    Fork(
        (
            (same_size(192, 1), _halve(320)),
            (same_size(192, 1), same_size(192, *_WIDE), same_size(192, *_TALL), _halve(192)),
            (_MAXIMUM,),
        )
    ),
    _expanded(),
    _expanded(),
)

AUXILIARY: Sequence = (PoolBranch("average", 5, 3), same_size(128, 1), Conv(768, (5, 5)))
AUXILIARY_AFTER = 7
"""The block whose output the auxiliary head sees."""

AUXILIARY_SHARE = 0.4
"""What the auxiliary head's loss counts beside the main one's."""


class Inception(Family, frozen=True, kw_only=True):
    """Inception v3; `aux` adds the auxiliary head, which is there for training only."""

    references: ClassVar[tuple[str, ...]] = ("Szegedy, Vanhoucke, Ioffe, Shlens, Wojna 2016, arXiv 1512.00567",)

    aux: bool = True
    image: Count = 299
    classes: Count = 1000
    dropout: Rate = 0.5

    def build(self, g: Builder, batch: int) -> None:
        target = task.targets(g, dims(sample=batch))
        x = task.images(g, batch, self.image)
        with g.scope("stem"):
            x = sequence(g, x, STEM)
        auxiliary = None
        for at, block in enumerate(BLOCKS):
            with g.scope(f"blocks.{at}"):
                x = _part(g, x, block)
            if self.aux and at == AUXILIARY_AFTER:
                with g.scope("auxiliary"):
                    with g.scope("features"):
                        seen = sequence(g, x, AUXILIARY)
                    auxiliary = self._head(g, seen, dropped=0.0)
        with g.scope("head"):
            x = self._head(g, x, dropped=self.dropout)
        loss = task.class_loss(g, x, target)
        if auxiliary is not None:
            second = task.class_loss(g, auxiliary, target)
            with g.scope("loss"):
                combine(g, loss, activation(g, second, "scale"))

    def _head(self, g: Builder, x: Value, dropped: float) -> Value:
        with g.scope("avgpool"):
            x = adaptive_average_pool(g, x, 1)
        with g.scope("dropout"):
            x = dropout(g, x, dropped)
        x = view(g, x, dims(sample=x.size("sample"), feature=x.size("channel")))
        with g.scope("fc"):
            return linear(g, x, dims(class_=self.classes))


def sequence(g: Builder, x: Value, parts: Sequence) -> Value:
    for at, part in enumerate(parts):
        with g.scope(at):
            x = _part(g, x, part)
    return x


def _part(g: Builder, x: Value, part: Conv | PoolBranch | Fork) -> Value:
    if isinstance(part, PoolBranch):
        return pool(g, x, part.function, part.kernel, stride=part.stride, padding=part.padding, ceil=part.ceil)
    if isinstance(part, Fork):
        made: list[Value] = []
        for at, branch in enumerate(part.branches):
            with g.scope(f"branches.{at}"):
                made.append(sequence(g, x, branch))
        return concatenate(g, made, "channel")
    with g.scope("conv"):
        x = convolution(g, x, part.filters, part.kernel, stride=part.stride, padding=part.padding, bias=False)
    with g.scope("norm"):
        x = batch_norm(g, x)
    with g.scope("relu"):
        return activation(g, x, "relu", inplace=True)


PRESETS = {"inception": Inception(), "inception-v3": Inception()}
