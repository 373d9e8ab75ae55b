"""Levels of the norm, rounded at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foretell.learning.compressor import Compressor, priced
from foretell.learning.compressors.int8 import rounded
from foretell.learning.option import option
from foretell.learning.vector import Shapes, Vector, pieces
from foretell.plan.policies.compression import Compression


@dataclass(frozen=True)
class Qsgd(Compressor):
    """|v| / norm in so many levels, with a sign; the mean is what was sent."""

    paper: ClassVar[str] = "Alistarh et al. 2017 (QSGD), arXiv 1610.02132"
    summary: ClassVar[str] = "a norm and a few levels, rounded at random"

    levels: int = option(4, 1)

    def lossy(self, vector: Vector, shapes: Shapes, draws: np.random.Generator) -> Vector:
        made = np.empty_like(vector)
        for where, piece in pieces(vector, shapes):
            norm = float(np.linalg.norm(piece))
            step = norm / self.levels
            made[where] = np.sign(piece.ravel()) * rounded(np.abs(piece.ravel()) / step, draws) * step if step else 0.0
        return made

    def size(self, vector: Vector, shapes: Shapes) -> float:
        return priced(Compression(levels=self.levels), shapes)
