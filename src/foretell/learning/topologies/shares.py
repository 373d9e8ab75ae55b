"""k = n, all at once: a scatter-reduce to the owners, and what they updated back to all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from foretell.learning.topologies._patterns import circle
from foretell.learning.topology import MessageRound, Topology


@dataclass(frozen=True)
class Shares(Topology):
    """2 (n - 1)/n T_w + (n - 1)/n R_w + U_w/n: each owner updates an n-th."""

    paper: ClassVar[str] = "Langer et al. 2020, section 3.4.2, arXiv 2007.03970"
    summary: ClassVar[str] = "every worker sums and updates an n-th, all at once"
    collective: ClassVar[bool] = True

    def owners(self, workers: int) -> int:
        return workers

    def gather(self, workers: int) -> Sequence[MessageRound]:
        return [MessageRound(circle(workers), 1 / workers, sums=True, times=workers - 1)]

    def spread(self, workers: int) -> Sequence[MessageRound]:
        return [MessageRound(circle(workers), 1 / workers, times=workers - 1)]
