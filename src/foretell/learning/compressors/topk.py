"""The largest elements only, each with its place; the others are added next time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foretell.learning.compressor import Compressor, Wire, as_bytes, from_bytes, priced
from foretell.learning.option import SOME, option
from foretell.learning.vector import Rows, Shapes, Vector, cells, pieces
from foretell.plan.policies.compression import Compression


@dataclass(frozen=True)
class Topk(Compressor):
    """`share` of the elements of each tensor. A sum of such gradients grows with what is added to it, up to dense: a
    sparse all-reduce (Renggli et al. 2019, SparCML, arXiv 1802.08021)."""

    paper: ClassVar[str] = "Aji and Heafield 2017, arXiv 1704.05021; Stich et al. 2018, arXiv 1809.07599"
    summary: ClassVar[str] = "the largest elements, with residuals"
    feedback: ClassVar[bool] = True
    sums: ClassVar[str] = "grows"

    share: float = option(0.01, SOME, 1)

    def lossy(self, vector: Vector, shapes: Shapes, draws: np.random.Generator) -> Vector:
        made = np.zeros_like(vector)
        for where, piece in pieces(vector, shapes):
            chosen = self._largest(piece.ravel())
            made[where][chosen] = piece.ravel()[chosen]
        return made

    def packed(self, vector: Vector, shapes: Shapes, draws: np.random.Generator) -> Wire:
        parts: list[Wire] = []
        for _, piece in pieces(vector, shapes):
            chosen = self._largest(piece.ravel())
            parts += [as_bytes(chosen.astype(np.int32)), as_bytes(piece.ravel()[chosen].astype(np.float32))]
        return np.concatenate(parts)

    def opened(self, wire: Wire, shapes: Shapes) -> Vector:
        made: list[Vector] = []
        for count in cells(shapes):
            places, wire = from_bytes(wire, np.int32, self._kept(count))
            values, wire = from_bytes(wire, np.float32, self._kept(count))
            made.append(np.zeros(count, np.float32))
            made[-1][places] = values
        return np.concatenate(made)

    def _kept(self, count: int) -> int:
        return min(count, math.ceil(count * self.share))

    def _largest(self, values: Vector) -> Rows:
        """Their places."""
        rest = len(values) - self._kept(len(values))
        return np.argpartition(np.abs(values), rest)[rest:]

    def size(self, vector: Vector, shapes: Shapes) -> float:
        return priced(Compression(kept=self.share), shapes)
