"""Sufficient factors: a dense layer's gradient as the two matrices that it is the product of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from foretell.learning.compressor import Compressor, Wire, as_bytes, from_bytes, priced
from foretell.learning.vector import Shapes, Vector, pieces, size
from foretell.plan.policies.compression import Compression


@dataclass(frozen=True)
class Factors(Compressor):
    """Nothing is lost: N (C_in + C_out) numbers instead of C_in C_out, where that is less.

    `samples` is N; 0: the batch. A gradient that is summed up does not know what came in and what came back any more,
    but a sum over N samples has rank N at most: an orthogonal basis of its columns, and it in that basis, are as large
    and have the same product.
    """

    paper: ClassVar[str] = "Xie et al. 2016 (sufficient factors), arXiv 1409.5705; Zhang et al. 2017 (Poseidon)"
    summary: ClassVar[str] = "the two factors of dense layers' gradients"

    samples: int = 0

    def of_batch(self, batch: int) -> Factors:
        return replace(self, samples=self.samples or batch)

    def lossy(self, vector: Vector, shapes: Shapes, draws: np.random.Generator) -> Vector:
        return vector

    def packed(self, vector: Vector, shapes: Shapes, draws: np.random.Generator) -> Wire:
        parts: list[Vector] = []
        for shape, (_, piece) in zip(shapes, pieces(vector, shapes), strict=True):
            parts += self._factored(piece.astype(np.float64), draws) if self._cut(shape) else [piece]
        return np.concatenate([as_bytes(part.astype(np.float32)) for part in parts])

    def opened(self, wire: Wire, shapes: Shapes) -> Vector:
        made: list[Vector] = []
        for shape in shapes:
            if self._cut(shape):
                left, wire = from_bytes(wire, np.float32, shape[0] * self.samples)
                right, wire = from_bytes(wire, np.float32, self.samples * shape[1])
                found = left.reshape(shape[0], -1) @ right.reshape(-1, shape[1])
            else:
                found, wire = from_bytes(wire, np.float32, size((shape,)))
            made.append(found.ravel())
        return np.concatenate(made)

    def size(self, vector: Vector, shapes: Shapes) -> float:
        return priced(Compression(factors=self.samples), shapes)

    def _cut(self, shape: tuple[int, ...]) -> bool:
        """Whether two factors are smaller than what they make."""
        return len(shape) == 2 and 0 < self.samples * sum(shape) < shape[0] * shape[1]

    def _factored(self, piece: Vector, draws: np.random.Generator) -> tuple[Vector, Vector]:
        left, _ = np.linalg.qr(piece @ draws.standard_normal((piece.shape[1], self.samples)))
        return left, left.T @ piece
