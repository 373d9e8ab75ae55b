"""Two thin matrices whose product is near, by one step of the power method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foretell.learning.compressor import Compressor, priced
from foretell.learning.option import option
from foretell.learning.vector import Shapes, Vector, pieces
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
            made[where] = self._near(piece, draws).ravel()
        return made

    def _near(self, piece: Vector, draws: np.random.Generator) -> Vector:
        rows, columns = piece.shape
        if self.rank * (rows + columns) >= rows * columns:  # vectors and small matrices travel as they are
            return piece
        left, _ = np.linalg.qr(piece @ (piece.T @ (piece @ draws.standard_normal((columns, self.rank)))))
        return left @ (left.T @ piece)

    def size(self, vector: Vector, shapes: Shapes) -> float:
        return priced(Compression(rank=self.rank), shapes)
