"""Gradients as they are, in single precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foretell.learning.compressor import Compressor, Wire, as_bytes, dense
from foretell.learning.vector import Shapes, Vector


@dataclass(frozen=True)
class Unchanged(Compressor):
    paper: ClassVar[str] = "none"
    summary: ClassVar[str] = "gradients as they are"
    sums: ClassVar[str] = "adds"

    def lossy(self, vector: Vector, shapes: Shapes, draws: np.random.Generator) -> Vector:
        return vector

    def packed(self, vector: Vector, shapes: Shapes, draws: np.random.Generator) -> Wire:
        return as_bytes(vector.astype(np.float32))

    def opened(self, wire: Wire, shapes: Shapes) -> Vector:
        return wire.view(np.float32)

    def size(self, vector: Vector, shapes: Shapes) -> float:
        return dense(shapes)
