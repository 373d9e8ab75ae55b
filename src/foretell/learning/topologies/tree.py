"""A tree: everybody knows its parent and its children."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from foretell.learning.option import option
from foretell.learning.topology import Topology


@dataclass(frozen=True)
class Tree(Topology):
    paper: ClassVar[str] = "Zhang 2016 (TreeEASGD), arXiv 1605.02216"
    summary: ClassVar[str] = "everybody knows its parent and its children"
    central: ClassVar[bool] = False

    fan: int = option(2, 1)

    def neighbours(self, worker: int, workers: int) -> Sequence[int]:
        return [*self.parents(worker), *self.children(worker, workers)]

    def parents(self, worker: int) -> Sequence[int]:
        """The one above; nobody above the root."""
        return [(worker - 1) // self.fan] if worker else []

    def children(self, worker: int, workers: int) -> Sequence[int]:
        first = worker * self.fan + 1
        return range(first, min(first + self.fan, workers))
