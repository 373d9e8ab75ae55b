"""A server above servers: groups of workers push to a proxy, proxies to the root."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from foretell.learning.option import option
from foretell.learning.topology import ShareMessage, Topology


@dataclass(frozen=True)
class Proxies(Topology):
    """Proxies send on what they get, one message after the other, and add their way to the staleness."""

    paper: ClassVar[str] = "Gupta et al. 2016 (Rudra), arXiv 1509.04210; Chen et al. 2015 (MXNet), arXiv 1512.01274"
    summary: ClassVar[str] = "a proxy for every so many workers, one root above"

    group: int = option(4, 1)

    def servers(self, workers: int) -> int:
        return 1 + -(-workers // self.group)

    def beside(self, workers: int) -> Sequence[int]:
        return [0, *range(0, workers, self.group)]  # a proxy with the first of its own

    def up(self, worker: int, workers: int) -> Sequence[Sequence[ShareMessage]]:
        proxy = workers + 1 + worker // self.group
        return [[ShareMessage(worker, proxy)], [ShareMessage(proxy, workers)]]
