"""Levels of the norm, rounded at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foretell.learning.compressor import priced
from foretell.learning.compressors._quantised import Quantised
from foretell.learning.compressors.int8 import rounded
from foretell.learning.option import option
from foretell.learning.vector import Rows, Shapes, Vector
from foretell.plan.policies.compression import Compression


@dataclass(frozen=True)
class Qsgd(Quantised):
    """|v| / norm in so many levels, with a sign; the mean is what was sent."""

    paper: ClassVar[str] = "Alistarh et al. 2017 (QSGD), arXiv 1610.02132"
    summary: ClassVar[str] = "a norm and a few levels, rounded at random"

    levels: int = option(4, 1)

    @property
    def most(self) -> int:
        return self.levels

    def coded(self, piece: Vector, draws: np.random.Generator) -> tuple[float, Rows]:
        step = float(np.linalg.norm(piece)) / self.levels
        found = rounded(np.abs(piece.ravel()) / (step or 1.0), draws)
        return step, np.sign(piece.ravel()) * found.clip(0, self.levels)

    def size(self, vector: Vector, shapes: Shapes) -> float:
        return priced(Compression(levels=self.levels), shapes)
