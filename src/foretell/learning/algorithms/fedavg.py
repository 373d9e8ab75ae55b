"""Federated averaging: local SGD whose mean counts each worker by the data that it has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from foretell.learning.algorithms.local import Local
from foretell.learning.vector import Vector

if TYPE_CHECKING:
    from foretell.learning.world import Worker, World


@dataclass
class FederatedAveraging(Local):
    paper: ClassVar[str] = "McMahan et al. 2017 (federated averaging), arXiv 1602.05629"
    summary: ClassVar[str] = "tau steps of each worker's own, then the mean, weighted by the data of each"
    invariant: ClassVar[str] = "with as much data everywhere it is local SGD"
    elastic: ClassVar[bool] = False  # shares of all data are those of the workers that began

    def offered(self, world: World, worker: Worker) -> Vector:
        return world.amount(worker) * world.count * worker.weights
