"""Population-based training: the worst copy the best, and try another rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from foretell.learning.algorithm import Decentral
from foretell.learning.option import option
from foretell.learning.vector import Vector

if TYPE_CHECKING:
    from foretell.learning.world import Worker, World

LOSSES, ASKED = "losses", "asked"
"""What a worker remembers: the last judgement of each that it heard of, and whom it waits for."""


@dataclass
class Population(Decentral):
    """Every tau gradients a worker is judged, and tells the others. One of the lower quarter asks one of the upper
    quarter for its weights and its rate, and multiplies the rate by 0.8 or 1.2: a schedule of rates that nobody had to
    choose. Nobody waits for anybody's judgement: a worker ranks those that it has heard of."""

    paper: ClassVar[str] = "Jaderberg et al. 2017 (population based training), arXiv 1711.09846"
    summary: ClassVar[str] = "the worst runs copy the best and try another rate"
    invariant: ClassVar[str] = "the best model seen at a judgement is never lost to a worse copy"
    handed: ClassVar[str] = "best"

    tau: int = option(16, 1)
    spread: float = option(4.0, 1)  # rates at first lie between rate / spread and rate x spread

    def begin(self, world: World) -> None:
        for worker in world.workers:
            worker.rate = world.rate * self.spread ** float(worker.draws.uniform(-1, 1))
            worker.memory = {LOSSES: {}, ASKED: -1}

    def stepped(self, world: World, worker: Worker) -> None:
        if worker.clock % self.tau == 0:
            loss = world.problem.judged([worker.weights]).loss
            worker.memory[LOSSES][worker.number] = loss
            for other in world.members():
                if other is not worker:
                    world.tell(worker, other.number, (worker.weights[:0], loss))
            if self.exploit(world, worker):
                return
        world.compute(worker)

    def exploit(self, world: World, worker: Worker) -> bool:
        """Whether it asks a better one for its model, and waits for it."""
        losses: dict[int, float] = worker.memory[LOSSES]
        order = sorted((one for one in losses if world.workers[one].present), key=lambda one: losses[one])
        quarter = max(1, len(order) // 4)
        if len(order) < 2 or worker.number not in order[-quarter:]:
            return False
        better = order[int(worker.draws.integers(quarter))]
        if losses[better] >= losses[worker.number]:
            return False
        worker.memory[ASKED] = better
        world.tell(worker, better, worker.weights[:0])
        return True

    def on_message(self, world: World, worker: Worker, sender: int, said: Any) -> None:
        losses: dict[int, float] = worker.memory[LOSSES]
        if not isinstance(said, tuple):  # it is asked
            model = np.append(worker.weights, worker.weights.dtype.type(worker.rate))
            world.send(worker, sender, (model, losses.get(worker.number, math.inf)))
            return
        vector, loss = cast("tuple[Vector, float]", said)
        losses[sender] = loss
        if len(vector) and worker.memory[ASKED] == sender:
            self.copy(world, worker, vector, loss)

    def copy(self, world: World, worker: Worker, model: Vector, loss: float) -> None:
        """Take a better one's weights and nearly its rate, and go on."""
        worker.weights, worker.velocity = model[:-1], None
        worker.rate = float(model[-1]) * (0.8 if worker.draws.random() < 0.5 else 1.2)
        worker.memory[LOSSES][worker.number] = loss
        worker.memory[ASKED] = -1
        world.compute(worker)

    def on_leave(self, world: World, worker: Worker) -> None:
        """Who waits for one that has left goes on with its own."""
        worker.memory[ASKED] = -1
        for other in world.members():
            if other.memory[ASKED] == worker.number:
                other.memory[ASKED] = -1
                world.compute(other)

    def judgement(self, worker: Worker) -> float:
        """Its own last one."""
        return worker.memory[LOSSES].get(worker.number, math.inf)

    def models(self, world: World) -> Sequence[Vector]:
        """The best that was judged last."""
        return [min(world.members(), key=self.judgement).weights]
