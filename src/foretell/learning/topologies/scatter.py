"""One server, and workers that sum shares among themselves before they push."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from foretell.learning.topologies._patterns import back, circle
from foretell.learning.topology import MessageRound, Topology


@dataclass(frozen=True)
class Scatter(Topology):
    """(2 + 2 (n - 1)/n) T_w + (n - 1)/n R_w + U_w: a reduce-scatter, a share each to the server, and back."""

    paper: ClassVar[str] = "Langer et al. 2020, section 3.4.1, arXiv 2007.03970"
    summary: ClassVar[str] = "workers sum shares among themselves, then push to one server"
    collective: ClassVar[bool] = True

    def servers(self, workers: int) -> int:
        return 1

    def gather(self, workers: int) -> Sequence[MessageRound]:
        among = MessageRound(circle(workers), 1 / workers, sums=True, times=workers - 1)
        return [among, MessageRound(self._to_server(workers), 1 / workers)]

    def spread(self, workers: int) -> Sequence[MessageRound]:
        among = MessageRound(circle(workers), 1 / workers, times=workers - 1)
        return [MessageRound(back(self._to_server(workers)), 1 / workers), among]

    @staticmethod
    def _to_server(workers: int) -> tuple[tuple[int, int], ...]:
        return tuple((worker, workers) for worker in range(workers))
