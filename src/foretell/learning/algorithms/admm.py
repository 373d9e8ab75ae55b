"""Consensus ADMM: workers solve their part near the consensus, with a price on being apart from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from foretell.learning.algorithms.local import Local
from foretell.learning.vector import Vector, mean

if TYPE_CHECKING:
    from foretell.learning.world import Push, Worker, World


@dataclass
class Admm(Local):
    """The part is solved by tau gradient steps; a worker's dual u stays with it. Bytes are those of local SGD."""

    paper: ClassVar[str] = "Boyd et al. 2011 (ADMM), section 7, doi 10.1561/2200000016"
    summary: ClassVar[str] = "tau steps near the consensus, with a price that adds up"
    invariant: ClassVar[str] = "the duals of all workers sum to 0 after each round"
    apart: ClassVar[bool] = False

    rho: float = 0.1

    def begin(self, world: World) -> None:
        super().begin(world)
        self.duals = [world.server.weights * 0 for _ in range(world.count)]

    def direction(self, world: World, worker: Worker, gradient: Vector) -> Vector:
        apart = worker.weights - world.server.weights + self.duals[worker.number]
        return super().direction(world, worker, gradient + self.rho * apart)

    def merge(self, world: World, pushes: Sequence[Push]) -> None:
        self.present = [push.worker.number for push in sorted(pushes, key=lambda push: push.worker.number)]
        super().merge(world, pushes)

    def merged(self, world: World, models: Sequence[Vector]) -> Vector:
        together = mean([model + self.duals[at] for at, model in zip(self.present, models, strict=True)])
        for at, model in zip(self.present, models, strict=True):
            self.duals[at] = self.duals[at] + model - together
        return together
