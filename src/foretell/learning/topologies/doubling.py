"""No server: an all-reduce by recursive doubling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from foretell.learning.topology import MessageRound, Topology


@dataclass(frozen=True)
class Doubling(Topology):
    """ceil(log2 n) (T_w + R_w) + U_w for powers of two; else the workers beyond one are taken in first, told last."""

    paper: ClassVar[str] = "Thakur, Rabenseifner, Gropp 2005, doi 10.1177/1094342005051521"
    summary: ClassVar[str] = "an all-reduce by recursive doubling; every worker runs the same optimizer"
    collective: ClassVar[bool] = True
    replicated: ClassVar[bool] = True

    def gather(self, workers: int) -> Sequence[MessageRound]:
        inside = 1 << (workers.bit_length() - 1)
        rounds = [MessageRound(self._beyond(workers, inside), sums=True)] if inside < workers else []
        apart = 1
        while apart < inside:
            rounds.append(MessageRound(tuple((at, at ^ apart) for at in range(inside)), sums=True))
            apart *= 2
        return rounds

    def spread(self, workers: int) -> Sequence[MessageRound]:
        inside = 1 << (workers.bit_length() - 1)
        told = tuple((target, source) for source, target in self._beyond(workers, inside))
        return [MessageRound(told)] if told else []

    @staticmethod
    def _beyond(workers: int, inside: int) -> tuple[tuple[int, int], ...]:
        return tuple((at, at - inside) for at in range(inside, workers))
