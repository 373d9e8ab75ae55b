"""Each element in 8 bits beside the largest of its tensor, rounded up or down at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foretell.learning.compressor import priced
from foretell.learning.compressors._quantised import Quantised
from foretell.learning.vector import Rows, Shapes, Vector
from foretell.plan.policies.compression import Compression

LEVELS = 127


@dataclass(frozen=True)
class Int8(Quantised):
    """What arrives has the mean of what was sent: rounding is stochastic (Gupta et al. 2015)."""

    paper: ClassVar[str] = "Dettmers 2016, arXiv 1511.04561; Gupta et al. 2015 (stochastic rounding), arXiv 1502.02551"
    summary: ClassVar[str] = "each element in 8 bits, rounded at random"

    @property
    def most(self) -> int:
        return LEVELS

    def coded(self, piece: Vector, draws: np.random.Generator) -> tuple[float, Rows]:
        step = np.abs(piece).max(initial=0.0) / LEVELS
        return step, rounded(piece.ravel() / (step or 1.0), draws).clip(-LEVELS, LEVELS)

    def size(self, vector: Vector, shapes: Shapes) -> float:
        return priced(Compression(width="int8"), shapes)


def rounded(values: Vector, draws: np.random.Generator) -> Vector:
    """Whole numbers whose mean is the value: the next one above with the probability of the rest."""
    below = np.floor(values)
    return below + (draws.random(values.shape) < values - below)
