"""MPCA-SGD in kind: computing and sharing decoupled, a penalty on being apart, extrapolation against staleness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from foretell.learning.algorithm import Algorithm
from foretell.learning.option import option
from foretell.learning.vector import Vector

if TYPE_CHECKING:
    from foretell.learning.world import Push, Worker, World


@dataclass
class Mpca(Algorithm):
    """A worker never waits. Its loss has a penalty rho/2 |w - centre|^2, with the centre carried on in the direction of
    its last change for as many steps as went by since it came. Every tau steps it sends its model and goes on; the
    centre is the mean of the last models sent."""

    paper: ClassVar[str] = "Langer, Hall, He, Rahayu 2018 (MPCA SGD), doi 10.1109/TPDS.2018.2833074"
    summary: ClassVar[str] = "own copies with a penalty for leaving an extrapolated centre; nobody waits"
    invariant: ClassVar[str] = "workers compute all the time; rho = 0 is model averaging"

    tau: int = option(4, 1)
    rho: float = 0.1

    def begin(self, world: World) -> None:
        first = world.server.weights
        self.last = [first] * world.count
        self.total = first * world.count
        for worker in world.workers:
            worker.memory["centre"] = (first, first * 0, 0)  # where, change a step, since which gradient

    def on_gradient(self, world: World, worker: Worker, gradient: Vector) -> None:
        where, change, since = worker.memory["centre"]
        ahead = where + min(worker.clock - since, self.tau) * change
        world.local_step(worker, gradient + self.rho * (worker.weights - ahead))
        if worker.clock % self.tau == 0:
            world.push(worker, worker.weights, weights=True)
        world.compute(worker)

    def on_push(self, world: World, push: Push) -> None:
        at = push.worker.number
        self.total = self.total - self.last[at] + push.vector
        self.last[at] = push.vector
        world.server.weights = self.total / world.count
        world.server.version += 1
        world.reply([push.worker])

    def on_join(self, world: World, worker: Worker) -> None:
        worker.memory["joins"] = True
        super().on_join(world, worker)

    def on_reply(self, world: World, worker: Worker, weights: Vector, version: int) -> None:
        where, _, since = worker.memory["centre"]
        went = max(1, worker.clock - since)
        worker.memory["centre"] = (weights, (weights - where) / went, worker.clock)
        if worker.memory.pop("joins", False):
            worker.weights = weights
            world.compute(worker)
