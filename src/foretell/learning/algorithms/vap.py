"""A bound on values: a worker waits while the weights are too far from the oldest ones in use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from foretell.learning.algorithm import OneByOne
from foretell.learning.option import SOME, option

if TYPE_CHECKING:
    from foretell.learning.world import Push, Worker, World


@dataclass
class ValueBound(OneByOne):
    paper: ClassVar[str] = "Wei et al. 2015 (Bosen; value-bounded asynchrony), SoCC; Langer et al. 2020, section 3.3"
    summary: ClassVar[str] = "nobody goes on while the weights are too far from the oldest in use"
    invariant: ClassVar[str] = "at each start the oldest weights in use are within the bound; no bound: asynchronous"
    apart: ClassVar[bool] = False

    bound: float = option(0.1, SOME)

    def begin(self, world: World) -> None:
        self.waiting: list[Worker] = []
        self.farthest = 0.0  # distance at which anybody was let go

    def stepped(self, world: World, push: Push) -> None:
        self.waiting.append(push.worker)
        self.release(world)

    def on_leave(self, world: World, worker: Worker) -> None:
        self.waiting = [one for one in self.waiting if one is not worker]
        self.release(world)

    def on_return(self, world: World, worker: Worker) -> None:
        self.waiting.append(worker)
        self.release(world)

    def release(self, world: World) -> None:
        distance = self.distance(world)
        if self.waiting and distance < self.bound:
            self.farthest = max(self.farthest, distance)
            free, self.waiting = self.waiting, []
            world.reply(free)

    def distance(self, world: World) -> float:
        """The largest change of an element since the oldest weights that a gradient is being made at."""
        used = [worker for worker in world.computing() if worker.present]
        if not used:
            return 0.0
        oldest = min(used, key=lambda worker: worker.version)
        return float(abs(world.server.weights - oldest.weights).max())
