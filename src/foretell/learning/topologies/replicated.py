"""No server: an all-reduce round a ring, and every worker runs the same optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from foretell.learning.topologies._patterns import circle
from foretell.learning.topology import MessageRound, Topology


@dataclass(frozen=True)
class Replicated(Topology):
    """2 (n - 1)/n T_w + (n - 1)/n R_w + U_w. The sum is taken in before it is spread: the same weights, once."""

    paper: ClassVar[str] = "Patarasuk and Yuan 2009 (bandwidth-optimal all-reduce), doi 10.1016/j.jpdc.2008.09.002"
    summary: ClassVar[str] = "an all-reduce round a ring; every worker runs the same optimizer"
    collective: ClassVar[bool] = True
    replicated: ClassVar[bool] = True

    def gather(self, workers: int) -> Sequence[MessageRound]:
        return [MessageRound(circle(workers), 1 / workers, sums=True, times=workers - 1)]

    def spread(self, workers: int) -> Sequence[MessageRound]:
        return [MessageRound(circle(workers), 1 / workers, times=workers - 1)]
