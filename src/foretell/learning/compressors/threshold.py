"""Elements above a threshold, as plus or minus the threshold; the rest is added next time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foretell.learning.compressor import Compressor, Wire, as_bytes, from_bytes, priced
from foretell.learning.option import SOME, option
from foretell.learning.vector import Rows, Shapes, Vector, cells, pieces, size
from foretell.plan.policies.compression import INDEX, Compression

SIGN = 31
"""The number of the bit of a place that says which sign it is (Strom 2015)."""


@dataclass(frozen=True)
class Threshold(Compressor):
    """How many pass a threshold depends on the gradient: bytes are counted, not foretold.

    With a `share`, each tensor has the threshold that so many of its elements pass, which then travels beside them.
    """

    paper: ClassVar[str] = "Strom 2015, Interspeech; Dryden et al. 2016 (a threshold for a share), MLHPC"
    summary: ClassVar[str] = "elements above a threshold, with residuals"
    feedback: ClassVar[bool] = True
    sums: ClassVar[str] = "grows"

    above: float = option(0.001, SOME)
    share: float = option(0.0, 0, 1)  # 0: by `above`

    def lossy(self, vector: Vector, shapes: Shapes, draws: np.random.Generator) -> Vector:
        made = np.zeros_like(vector)
        for where, piece in pieces(vector, shapes):
            values = piece.ravel()
            bound, passing = self._passing(values)
            made[where][passing] = np.copysign(bound, values[passing])
        return made

    def packed(self, vector: Vector, shapes: Shapes, draws: np.random.Generator) -> Wire:
        return np.concatenate([np.zeros(0, np.uint8), *self._parts(vector, shapes)])

    def _parts(self, vector: Vector, shapes: Shapes) -> Iterator[Wire]:
        for where, piece in pieces(vector, shapes):
            values = piece.ravel()
            bound, passing = self._passing(values)
            begin = 0 if self.share else where.start  # where nobody knows how many pass, places are those of all
            signs = np.signbit(values[passing]).astype(np.uint32) << SIGN
            yield as_bytes((passing + begin).astype(np.uint32) | signs)
            if self.share:
                yield as_bytes(np.float32(bound))

    def opened(self, wire: Wire, shapes: Shapes) -> Vector:
        if not self.share:
            return _placed(wire.view(np.uint32), self.above, size(shapes))
        made: list[Vector] = []
        for count in cells(shapes):
            found, wire = from_bytes(wire, np.uint32, self._kept(count))
            bound, wire = from_bytes(wire, np.float32, 1)
            made.append(_placed(found, bound[0], count))
        return np.concatenate(made)

    def _kept(self, count: int) -> int:
        return min(count, math.ceil(count * self.share))

    def _passing(self, values: Vector) -> tuple[float, Rows]:
        """The threshold, and the places of those that pass."""
        sizes = np.abs(values)
        if not self.share:
            return self.above, np.flatnonzero(sizes >= self.above)
        rest = len(values) - self._kept(len(values))
        passing = np.argpartition(sizes, rest)[rest:]
        return float(sizes[passing].min()), passing

    def size(self, vector: Vector, shapes: Shapes) -> float:
        if self.share:
            return priced(Compression(passed=self.share), shapes)
        return float(INDEX) * int(np.count_nonzero(vector)) * (size(shapes) / len(vector))


def _placed(found: Rows, bound: float, count: int) -> Vector:
    made = np.zeros(count, np.float32)
    made[found & ~np.uint32(1 << SIGN)] = np.where(found >> SIGN, -bound, bound)
    return made
