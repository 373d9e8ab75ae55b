"""Each element in 16 bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foretell.learning.compressor import Compressor, Wire, as_bytes, priced
from foretell.learning.vector import Shapes, Vector
from foretell.plan.policies.compression import Compression


@dataclass(frozen=True)
class Fp16(Compressor):
    paper: ClassVar[str] = "Micikevicius et al. 2018 (mixed precision), arXiv 1710.03740"
    summary: ClassVar[str] = "each element in 16 bits"
    sums: ClassVar[str] = "adds"

    def lossy(self, vector: Vector, shapes: Shapes, draws: np.random.Generator) -> Vector:
        return vector.astype(np.float16).astype(vector.dtype)

    def packed(self, vector: Vector, shapes: Shapes, draws: np.random.Generator) -> Wire:
        return as_bytes(vector.astype(np.float16))

    def opened(self, wire: Wire, shapes: Shapes) -> Vector:
        return wire.view(np.float16).astype(np.float32)

    def size(self, vector: Vector, shapes: Shapes) -> float:
        return priced(Compression(width="fp16"), shapes)
