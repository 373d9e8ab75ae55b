"""One server, and a binomial tree of workers below it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from foretell.learning.topologies._patterns import Pairs, back, tree
from foretell.learning.topology import MessageRound, Topology


@dataclass(frozen=True)
class Binomial(Topology):
    """2 ceil(log2(n + 1)) T_w + ceil(log2 n) R_w + U_w.

    Where n is a power of two the workers' tree is full and the server is one more round above it, which sums
    nothing; else the server is a place in the tree.
    """

    paper: ClassVar[str] = "Iandola et al. 2016 (FireCaffe), arXiv 1511.00175"
    summary: ClassVar[str] = "one server above a binomial tree of workers"
    collective: ClassVar[bool] = True

    def servers(self, workers: int) -> int:
        return 1

    def gather(self, workers: int) -> Sequence[MessageRound]:
        return [MessageRound(pairs, sums=sums) for pairs, sums in self._rounds(workers)]

    def spread(self, workers: int) -> Sequence[MessageRound]:
        return [MessageRound(back(pairs)) for pairs, _ in reversed(self._rounds(workers))]

    @staticmethod
    def _rounds(workers: int) -> list[tuple[Pairs, bool]]:
        if workers & (workers - 1):
            return [(pairs, True) for pairs in tree([workers, *range(workers)])]
        return [*((pairs, True) for pairs in tree(list(range(workers)))), (((0, workers),), False)]
