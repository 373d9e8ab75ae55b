"""Elastic averaging: workers roam, held to a centre by springs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from foretell.learning.algorithm import Algorithm
from foretell.learning.option import option
from foretell.learning.vector import Vector

if TYPE_CHECKING:
    from foretell.learning.world import Push, Worker, World


@dataclass
class Easgd(Algorithm):
    """Every tau steps a worker asks for the centre, moves towards it and tells the centre to move as far to it."""

    paper: ClassVar[str] = "Zhang, Choromanska, LeCun 2015 (EASGD), arXiv 1412.6651; Langer et al. 2020, figure 10"
    summary: ClassVar[str] = "each worker's own copy, pulled to a centre that is pulled to it"
    invariant: ClassVar[str] = "elastic symmetry: what a worker loses the centre gains"

    tau: int = option(4, 1)
    alpha: float = option(0.0, 0, 1)  # 0: 0.9 / n, as in the paper

    def begin(self, world: World) -> None:
        self.pull = self.alpha or min(0.5, 0.9 / world.count)

    def on_gradient(self, world: World, worker: Worker, gradient: Vector) -> None:
        world.local_step(worker, gradient)
        if worker.clock % self.tau:
            world.compute(worker)
        else:
            world.reply([worker])

    def on_reply(self, world: World, worker: Worker, weights: Vector, version: int) -> None:
        worker.version = version
        if worker.clock:  # one that joins has nothing to give yet
            apart = self.pull * (worker.weights - weights)
            worker.weights = worker.weights - apart
            world.push(worker, apart, weights=True)
        else:
            worker.weights = weights
        world.compute(worker)

    def on_push(self, world: World, push: Push) -> None:
        world.serve(1, lambda: self.move(world, push))

    def move(self, world: World, push: Push) -> None:
        world.staleness[world.server.version - push.version] += 1
        world.server.weights = world.server.weights + push.vector
        world.server.version += 1
