"""The largest elements only, each with its place; the others are added next time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foretell.learning.compressor import Compressor, priced
from foretell.learning.option import SOME, option
from foretell.learning.vector import Shapes, Vector, size
from foretell.plan.policies.compression import Compression


@dataclass(frozen=True)
class Topk(Compressor):
    """`share` of the elements. A sum of such gradients grows with what is added to it, up to dense: a sparse all-reduce
    (Renggli et al. 2019, SparCML, arXiv 1802.08021)."""

    paper: ClassVar[str] = "Aji and Heafield 2017, arXiv 1704.05021; Stich et al. 2018, arXiv 1809.07599"
    summary: ClassVar[str] = "the largest elements, with residuals"
    feedback: ClassVar[bool] = True
    sums: ClassVar[str] = "grows"

    share: float = option(0.01, SOME, 1)

    def lossy(self, vector: Vector, shapes: Shapes, draws: np.random.Generator) -> Vector:
        kept = min(len(vector), math.ceil(len(vector) * self.share))
        made = np.zeros_like(vector)
        chosen = np.argpartition(np.abs(vector), len(vector) - kept)[len(vector) - kept :]
        made[chosen] = vector[chosen]
        return made

    def size(self, vector: Vector, shapes: Shapes) -> float:
        return priced(Compression(kept=self.share), ((size(shapes),),))
