"""Sufficient factors: a dense layer's gradient as the two matrices that it is the product of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from foretell.learning.compressor import WIDTH, Compressor
from foretell.learning.vector import Shapes, Vector


@dataclass(frozen=True)
class Factors(Compressor):
    """Nothing is lost: N (C_in + C_out) numbers instead of C_in C_out, where that is less.

    `samples` is N; 0: the batch.
    """

    paper: ClassVar[str] = "Xie et al. 2016 (sufficient factors), arXiv 1409.5705; Zhang et al. 2017 (Poseidon)"
    summary: ClassVar[str] = "the two factors of dense layers' gradients"

    written: ClassVar[bool] = False  # a gradient that is summed up does not know its factors any more

    samples: int = 0

    def of_batch(self, batch: int) -> Factors:
        return replace(self, samples=self.samples or batch)

    def lossy(self, vector: Vector, shapes: Shapes, draws: np.random.Generator) -> Vector:
        return vector

    def size(self, vector: Vector, shapes: Shapes) -> float:
        return WIDTH * sum(self._numbers(shape) for shape in shapes)

    def _numbers(self, shape: tuple[int, ...]) -> int:
        whole = int(np.prod(shape))
        return min(whole, self.samples * sum(shape)) if len(shape) == 2 else whole
