"""Minus one, nought or one beside the largest of its tensor, at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foretell.learning.compressor import Compressor, priced
from foretell.learning.vector import Shapes, Vector, pieces
from foretell.plan.policies.compression import Compression


@dataclass(frozen=True)
class Ternary(Compressor):
    """An element is kept with the probability of its share of the largest: the mean is what was sent."""

    paper: ClassVar[str] = "Wen et al. 2017 (TernGrad), arXiv 1705.07878"
    summary: ClassVar[str] = "minus one, nought or one times a scale, at random"

    def lossy(self, vector: Vector, shapes: Shapes, draws: np.random.Generator) -> Vector:
        made = np.empty_like(vector)
        for where, piece in pieces(vector, shapes):
            most = np.abs(piece).max(initial=0.0)
            kept = draws.random(piece.size) * most < np.abs(piece.ravel())
            made[where] = np.sign(piece.ravel()) * kept * most
        return made

    def size(self, vector: Vector, shapes: Shapes) -> float:
        return priced(Compression(width="ternary"), shapes)
