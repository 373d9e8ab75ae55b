"""One server: every worker pushes to it, and it answers each in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from foretell.learning.topology import ShareMessage, Topology


@dataclass(frozen=True)
class Single(Topology):
    """Its port carries n models each way: 2 n T_w + (n - 1) R_w + U_w when all come at once."""

    paper: ClassVar[str] = "Langer et al. 2020, section 3.4.1, arXiv 2007.03970"
    summary: ClassVar[str] = "one server that everybody pushes to"

    def servers(self, workers: int) -> int:
        return 1

    def up(self, worker: int, workers: int) -> Sequence[Sequence[ShareMessage]]:
        return [[ShareMessage(worker, workers)]]
