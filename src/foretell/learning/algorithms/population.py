"""Population-based training: the worst copy the best, and try another rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from foretell.learning.algorithm import Decentral
from foretell.learning.option import option
from foretell.learning.vector import Vector

if TYPE_CHECKING:
    from foretell.learning.world import Worker, World


@dataclass
class Population(Decentral):
    """Every tau gradients a worker is judged. One of the lower quarter takes the weights and the rate of one of the
    upper quarter, and multiplies the rate by 0.8 or 1.2: a schedule of rates that nobody had to choose."""

    paper: ClassVar[str] = "Jaderberg et al. 2017 (population based training), arXiv 1711.09846"
    summary: ClassVar[str] = "the worst runs copy the best and try another rate"
    invariant: ClassVar[str] = "the best model seen at a judgement is never lost to a worse copy"
    apart: ClassVar[bool] = False

    tau: int = option(16, 1)
    spread: float = option(4.0, 1)  # rates at first lie between rate / spread and rate x spread

    def begin(self, world: World) -> None:
        self.losses: dict[int, float] = {}
        for worker in world.workers:
            worker.rate = world.rate * self.spread ** float(worker.draws.uniform(-1, 1))

    def stepped(self, world: World, worker: Worker) -> None:
        if worker.clock % self.tau == 0:
            self.losses[worker.number] = world.problem.judged([worker.weights]).loss
            if self.exploit(world, worker):
                return
        world.compute(worker)

    def exploit(self, world: World, worker: Worker) -> bool:
        """Whether it asks a better one for its model, and waits for it."""
        order = sorted((one for one in self.losses if world.workers[one].present), key=lambda one: self.losses[one])
        quarter = max(1, len(order) // 4)
        if len(order) < 2 or worker.number not in order[-quarter:]:
            return False
        better = world.workers[order[int(worker.draws.integers(quarter))]]
        if self.losses[better.number] >= self.losses[worker.number]:
            return False
        rate = better.rate * (0.8 if worker.draws.random() < 0.5 else 1.2)
        world.send(better, worker.number, (better.weights, rate, self.losses[better.number]))
        return True

    def on_message(self, world: World, worker: Worker, sender: int, said: Any) -> None:
        worker.weights, worker.rate, self.losses[worker.number] = said
        worker.velocity = None
        if worker.present:
            world.compute(worker)

    def models(self, world: World) -> Sequence[Vector]:
        """The best that was judged last."""
        present = [one for one in self.losses if world.workers[one].present]
        best = min(present, key=lambda one: self.losses[one], default=world.members()[0].number)
        return [world.workers[best].weights]
