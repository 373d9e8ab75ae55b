"""GoogLeNet (Inception v1): nine blocks of four branches, as torchvision has it.

With batch norms in the place of local response normalization and biases, and 3 x 3 windows where the paper has 5 x 5;
the two auxiliary heads of training are left out.
"""

from __future__ import annotations

from typing import ClassVar

from foretell.model.build import Builder, dims
from foretell.model.family import Count, Family, Rate
from foretell.model.operators.dropout import dropout
from foretell.model.operators.layout import view
from foretell.model.operators.matmul import linear
from foretell.model.operators.pooling import adaptive_average_pool
from foretell.model.zoo import _task as task
from foretell.model.zoo.inception import Conv, Fork, PoolBranch, Sequence, same_size, sequence

HALVE = PoolBranch("max", 3, 2, ceil=True)

STEM: Sequence = (Conv(64, (7, 7), 2, (3, 3)), HALVE, same_size(64, 1), same_size(192, 3), HALVE)


def _block(one: int, three: tuple[int, int], five: tuple[int, int], pooled: int) -> Fork:
    """Branches of one convolution, of two, of two, and of a pool (Figure 2b of the paper; filters: its Table 1)."""
    pool = PoolBranch("max", 3, 1, 1, ceil=True)
    branches = [(same_size(inner, 1), same_size(outer, 3)) for inner, outer in (three, five)]
    return Fork(((same_size(one, 1),), *branches, (pool, same_size(pooled, 1))))


BLOCKS: Sequence = (
    _block(64, (96, 128), (16, 32), 32),
    _block(128, (128, 192), (32, 96), 64),
    HALVE,
    _block(192, (96, 208), (16, 48), 64),
    _block(160, (112, 224), (24, 64), 64),
    _block(128, (128, 256), (24, 64), 64),
    _block(112, (144, 288), (32, 64), 64),
    _block(256, (160, 320), (32, 128), 128),
    PoolBranch("max", 2, 2, ceil=True),
    _block(256, (160, 320), (32, 128), 128),
    _block(384, (192, 384), (48, 128), 128),
)


class GoogLeNet(Family, frozen=True, kw_only=True):
    """GoogLeNet without its auxiliary heads."""

    references: ClassVar[tuple[str, ...]] = ("Szegedy et al. 2015, arXiv 1409.4842",)

    image: Count = 224
    classes: Count = 1000
    dropout: Rate = 0.2

    def build(self, g: Builder, batch: int) -> None:
        target = task.targets(g, dims(sample=batch))
        x = task.images(g, batch, self.image)
        with g.scope("stem"):
            x = sequence(g, x, STEM)
        with g.scope("blocks"):
            x = sequence(g, x, BLOCKS)
        with g.scope("avgpool"):
            x = adaptive_average_pool(g, x, 1)
        with g.scope("dropout"):
            x = dropout(g, x, self.dropout)
        x = view(g, x, dims(sample=x.size("sample"), feature=x.size("channel")))
        with g.scope("fc"):
            x = linear(g, x, dims(class_=self.classes))
        task.class_loss(g, x, target)


PRESETS = {"googlenet": GoogLeNet()}
