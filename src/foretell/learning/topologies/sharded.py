"""k servers with a share of the weights each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from foretell.learning.option import option
from foretell.learning.topology import ShareMessage, Topology


@dataclass(frozen=True)
class Sharded(Topology):
    """A worker's push is k messages; each server sums and updates its share."""

    paper: ClassVar[str] = "Dean et al. 2012 (DistBelief), NIPS 25; Li et al. 2014 (parameter server), OSDI 14"
    summary: ClassVar[str] = "k servers with a share of the weights each"

    k: int = option(2, 1)

    def servers(self, workers: int) -> int:
        return self.k

    def owners(self, workers: int) -> int:
        return self.k

    def up(self, worker: int, workers: int) -> Sequence[Sequence[ShareMessage]]:
        return [[ShareMessage(worker, workers + server, 1 / self.k) for server in range(self.k)]]
