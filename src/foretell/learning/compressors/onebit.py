"""Signs, and the mean of what has each sign; what is lost is added next time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foretell.learning.compressor import Compressor, priced
from foretell.learning.vector import Shapes, Vector, pieces
from foretell.plan.policies.compression import Compression


@dataclass(frozen=True)
class Onebit(Compressor):
    paper: ClassVar[str] = "Seide et al. 2014 (1-bit SGD), Interspeech; Karimireddy et al. 2019, arXiv 1901.09847"
    summary: ClassVar[str] = "signs and a scale, with error feedback"
    feedback: ClassVar[bool] = True

    def lossy(self, vector: Vector, shapes: Shapes, draws: np.random.Generator) -> Vector:
        made = np.empty_like(vector)
        for where, piece in pieces(vector, shapes):
            made[where] = np.where(piece.ravel() < 0, -1.0, 1.0) * np.abs(piece).mean()
        return made

    def size(self, vector: Vector, shapes: Shapes) -> float:
        return priced(Compression(width="1bit"), shapes)
