"""Elements above a threshold, as plus or minus the threshold; the rest is added next time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foretell.learning.compressor import Compressor, Wire, as_bytes
from foretell.learning.option import SOME, option
from foretell.learning.vector import Shapes, Vector, size

INDEX = 4.0
"""Bytes of a place, whose highest bit is the sign (Strom 2015)."""

SIGN = 31
"""The number of that bit."""


@dataclass(frozen=True)
class Threshold(Compressor):
    """How many travel depends on the gradient: bytes are counted, not foretold."""

    paper: ClassVar[str] = "Strom 2015, Interspeech"
    summary: ClassVar[str] = "elements above a threshold, with residuals"
    feedback: ClassVar[bool] = True
    sums: ClassVar[str] = "grows"

    above: float = option(0.001, SOME)

    def lossy(self, vector: Vector, shapes: Shapes, draws: np.random.Generator) -> Vector:
        return (np.where(np.abs(vector) >= self.above, np.sign(vector), 0.0) * self.above).astype(vector.dtype)

    def packed(self, vector: Vector, shapes: Shapes, draws: np.random.Generator) -> Wire:
        places = np.flatnonzero(np.abs(vector) >= self.above).astype(np.uint32)
        return as_bytes(places | (vector[places] < 0).astype(np.uint32) << SIGN)

    def opened(self, wire: Wire, shapes: Shapes) -> Vector:
        found, made = wire.view(np.uint32), np.zeros(size(shapes), np.float32)
        made[found & ~np.uint32(1 << SIGN)] = np.where(found >> SIGN, -self.above, self.above)
        return made

    def size(self, vector: Vector, shapes: Shapes) -> float:
        return INDEX * int(np.count_nonzero(vector)) * (size(shapes) / len(vector))
