"""A closed ring: everybody knows both neighbours and nobody else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from foretell.learning.topology import Topology


@dataclass(frozen=True)
class Ring(Topology):
    paper: ClassVar[str] = "Lian et al. 2017 (D-PSGD), arXiv 1705.09056"
    summary: ClassVar[str] = "everybody knows both neighbours"
    central: ClassVar[bool] = False

    def neighbours(self, worker: int, workers: int) -> Sequence[int]:
        return sorted({(worker - 1) % workers, (worker + 1) % workers} - {worker})
