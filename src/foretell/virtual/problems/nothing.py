"""Nothing to learn: the clock alone, with one weight that never moves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foretell.learning.vector import Rows, Shapes, Vector
from foretell.virtual.problem import Judged


class Nothing:
    name: str = "nothing"
    metric: str = "nothing"
    shapes: Shapes = ((1,),)
    samples: int = 0
    labels: Rows = np.zeros(0, np.int64)

    def __init__(self) -> None:
        self._zero = np.zeros(1)

    def start(self, seed: int) -> Vector:
        return self._zero

    def gradients(self, weights: Sequence[Vector], rows: Sequence[Rows]) -> Sequence[Vector]:
        return [self._zero] * len(weights)

    def judged(self, models: Sequence[Vector]) -> Judged:
        return Judged(0.0, 0.0)

    def distilled(self, models: Sequence[Vector]) -> Nothing:
        return self
