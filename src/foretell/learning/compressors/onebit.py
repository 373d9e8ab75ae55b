"""Signs, and the mean of what has each sign; what is lost is added next time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foretell.learning.compressor import Wire, priced
from foretell.learning.compressors._quantised import Quantised
from foretell.learning.vector import Rows, Shapes, Vector
from foretell.plan.policies.compression import Compression


@dataclass(frozen=True)
class Onebit(Quantised):
    paper: ClassVar[str] = "Seide et al. 2014 (1-bit SGD), Interspeech; Karimireddy et al. 2019, arXiv 1901.09847"
    summary: ClassVar[str] = "signs and a scale, with error feedback"
    feedback: ClassVar[bool] = True

    @property
    def bits(self) -> int:
        return 1

    def coded(self, piece: Vector, draws: np.random.Generator) -> tuple[float, Rows]:
        return np.abs(piece).mean(), np.where(piece.ravel() < 0, -1.0, 1.0)

    def in_bits(self, levels: Rows) -> Wire:
        return np.packbits(levels > 0)

    def out_of_bits(self, wire: Wire, count: int) -> Rows:
        return np.unpackbits(wire, count=count) * 2.0 - 1.0

    def size(self, vector: Vector, shapes: Shapes) -> float:
        return priced(Compression(width="1bit"), shapes)
