"""Deep gradient compression: the largest elements, of momentum that each worker keeps itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from foretell.learning.compressors.topk import Topk


@dataclass(frozen=True)
class Dgc(Topk):
    """Momentum correction and masking; the server then needs no momentum of its own."""

    paper: ClassVar[str] = "Lin et al. 2018 (deep gradient compression), arXiv 1712.01887"
    summary: ClassVar[str] = "the largest elements of local momentum, with residuals"
    correction: ClassVar[float] = 0.9
