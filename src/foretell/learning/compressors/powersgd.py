"""Two thin matrices whose product is near, by one step of the power method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foretell.learning.compressor import Compressor, Wire, as_bytes, from_bytes, priced
from foretell.learning.option import option
from foretell.learning.vector import Shapes, Vector, cells, pieces
from foretell.plan.policies.compression import Compression


@dataclass(frozen=True)
class Powersgd(Compressor):
    """The right factor is drawn anew each time (Vogels et al. go on with the last one: fewer steps, the same bytes)."""

    paper: ClassVar[str] = "Vogels et al. 2019 (PowerSGD), arXiv 1905.13727"
    summary: ClassVar[str] = "two thin matrices, with error feedback"
    feedback: ClassVar[bool] = True
    sums: ClassVar[str] = "adds"

    rank: int = option(4, 1)

    def lossy(self, vector: Vector, shapes: Shapes, draws: np.random.Generator) -> Vector:
        made = np.empty_like(vector)
        for where, piece in pieces(vector, shapes):
            made[where] = (
                piece.ravel() if self.as_it_is(*piece.shape) else np.ravel(np.matmul(*self._thin(piece, draws)))
            )
        return made

    def packed(self, vector: Vector, shapes: Shapes, draws: np.random.Generator) -> Wire:
        parts: list[Vector] = []
        for _, piece in pieces(vector, shapes):
            parts += [piece] if self.as_it_is(*piece.shape) else self._thin(piece, draws)
        return np.concatenate([as_bytes(part.astype(np.float32)) for part in parts])

    def opened(self, wire: Wire, shapes: Shapes) -> Vector:
        made: list[Vector] = []
        for shape, count in zip(shapes, cells(shapes), strict=True):
            rows = shape[0] if shape else 1
            if self.as_it_is(rows, count // rows):
                found, wire = from_bytes(wire, np.float32, count)
            else:
                left, wire = from_bytes(wire, np.float32, rows * self.rank)
                right, wire = from_bytes(wire, np.float32, self.rank * (count // rows))
                found = left.reshape(rows, self.rank) @ right.reshape(self.rank, -1)
            made.append(found.ravel())
        return np.concatenate(made)

    def as_it_is(self, rows: int, columns: int) -> bool:
        """Vectors and small matrices travel as they are."""
        return self.rank * (rows + columns) >= rows * columns

    def _thin(self, piece: Vector, draws: np.random.Generator) -> tuple[Vector, Vector]:
        left, _ = np.linalg.qr(piece @ (piece.T @ (piece @ draws.standard_normal((piece.shape[1], self.rank)))))
        return left, left.T @ piece

    def size(self, vector: Vector, shapes: Shapes) -> float:
        return priced(Compression(rank=self.rank), shapes)
