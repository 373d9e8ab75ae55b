"""Least squares in double precision: convex, and the answer is known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foretell.learning.vector import Rows, Vector
from foretell.virtual.problem import Judged

TENTHS = 10


class Squares:
    """Half the mean square of A w - b, over `samples` rows of A; the loss is what lies above the least one.

    `condition` is that of the Hessian: the ratio of its largest to its smallest eigenvalue, the largest being 1.
    """

    name: str = "squares"
    metric: str = "distance"

    def __init__(
        self, size: int = 10, samples: int = 256, noise: float = 0.1, condition: float = 10.0, seed: int = 0
    ) -> None:
        draws = np.random.default_rng(seed)
        left, _ = np.linalg.qr(draws.standard_normal((samples, size)))
        right, _ = np.linalg.qr(draws.standard_normal((size, size)))
        scales = np.sqrt(np.geomspace(1.0, 1.0 / condition, size) * samples)
        self.samples, self.shapes = samples, ((size,),)
        self._a = left * scales @ right
        self._b = self._a @ draws.standard_normal(size) + noise * draws.standard_normal(samples)
        self.answer: Vector = np.linalg.lstsq(self._a, self._b, rcond=None)[0]
        self._least = self._half_square(self.answer)
        self.labels: Rows = np.argsort(np.argsort(self._b)) * TENTHS // samples  # a class: a tenth of the values

    def _half_square(self, weights: Vector) -> float:
        return 0.5 * float(np.mean((self._a @ weights - self._b) ** 2))

    def start(self, seed: int) -> Vector:
        return np.zeros(len(self.answer))

    def gradients(self, weights: Sequence[Vector], rows: Sequence[Rows]) -> Sequence[Vector]:
        return [self._gradient(w, chosen) for w, chosen in zip(weights, rows, strict=True)]

    def _gradient(self, weights: Vector, rows: Rows) -> Vector:
        a = self._a[rows]
        return a.T @ (a @ weights - self._b[rows]) / len(rows)

    def judged(self, models: Sequence[Vector]) -> Judged:
        weights = np.mean(models, axis=0)  # answers are linear in the weights
        return Judged(self._half_square(weights) - self._least, float(np.linalg.norm(weights - self.answer)))

    def distilled(self, models: Sequence[Vector]) -> Squares:
        student = object.__new__(Squares)
        student.__dict__ |= self.__dict__
        student._b = self._a @ np.mean(models, axis=0)
        return student
