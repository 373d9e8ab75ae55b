"""k = n: every worker serves an n-th of the weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from foretell.learning.topology import ShareMessage, Topology


@dataclass(frozen=True)
class Every(Topology):
    """A worker keeps its own share and sends the others theirs, as BigDL and MXNet do."""

    paper: ClassVar[str] = "Dai et al. 2019 (BigDL), arXiv 1804.05839; Langer et al. 2020, section 3.4.2"
    summary: ClassVar[str] = "every worker serves an n-th of the weights"

    def owners(self, workers: int) -> int:
        return workers

    def up(self, worker: int, workers: int) -> Sequence[Sequence[ShareMessage]]:
        others = [(worker + step) % workers for step in range(1, workers)]
        return [[ShareMessage(worker, other, 1 / workers) for other in others]]
