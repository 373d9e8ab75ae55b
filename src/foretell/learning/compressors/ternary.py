"""Minus one, nought or one beside the largest of its tensor, at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foretell.learning.compressor import priced
from foretell.learning.compressors._quantised import Quantised
from foretell.learning.vector import Rows, Shapes, Vector
from foretell.plan.policies.compression import Compression


@dataclass(frozen=True)
class Ternary(Quantised):
    """An element is kept with the probability of its share of the largest: the mean is what was sent."""

    paper: ClassVar[str] = "Wen et al. 2017 (TernGrad), arXiv 1705.07878"
    summary: ClassVar[str] = "minus one, nought or one times a scale, at random"

    @property
    def most(self) -> int:
        return 1

    def coded(self, piece: Vector, draws: np.random.Generator) -> tuple[float, Rows]:
        largest = np.abs(piece).max(initial=0.0)
        kept = draws.random(piece.size) * largest < np.abs(piece.ravel())
        return largest, np.sign(piece.ravel()) * kept

    def size(self, vector: Vector, shapes: Shapes) -> float:
        return priced(Compression(width="ternary"), shapes)
