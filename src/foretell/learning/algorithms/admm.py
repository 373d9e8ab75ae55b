"""Consensus ADMM: workers solve their part near the consensus, with a price on being apart from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from foretell.learning.algorithms.local import Local
from foretell.learning.vector import Vector

if TYPE_CHECKING:
    from foretell.learning.world import Worker, World


@dataclass
class Admm(Local):
    """The part is solved by tau gradient steps; a worker's dual u stays with it, and travels in the sum that it pushes:
    z is the mean of w + u, and u grows by w - z. Bytes are those of local SGD."""

    paper: ClassVar[str] = "Boyd et al. 2011 (ADMM), section 7, doi 10.1561/2200000016"
    summary: ClassVar[str] = "tau steps near the consensus, with a price that adds up"
    invariant: ClassVar[str] = "the duals of all workers sum to 0 after each round"

    rho: float = 0.1

    def begin(self, world: World) -> None:
        super().begin(world)
        self.duals = [world.server.weights * 0 for _ in range(world.count)]

    def direction(self, world: World, worker: Worker, gradient: Vector) -> Vector:
        apart = worker.weights - world.server.weights + self.duals[worker.number]
        return super().direction(world, worker, gradient + self.rho * apart)

    def offered(self, world: World, worker: Worker) -> Vector:
        return worker.weights + self.duals[worker.number]

    def on_reply(self, world: World, worker: Worker, weights: Vector, version: int) -> None:
        if self.steps[worker.number] >= self.period(world):  # else it joins, and was in no mean
            self.duals[worker.number] = self.duals[worker.number] + worker.weights - weights
        super().on_reply(world, worker, weights, version)
