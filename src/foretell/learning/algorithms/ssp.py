"""Stale synchronous: asynchronous, but nobody is more than s gradients ahead of the slowest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from foretell.learning.algorithm import OneByOne
from foretell.learning.option import option
from foretell.learning.vector import Vector

if TYPE_CHECKING:
    from foretell.learning.world import Push, Worker, World


@dataclass
class StaleSynchronous(OneByOne):
    """A worker goes on with the weights it has, and its own gradients, for as long as the bound allows; then it fetches
    new ones (Ho et al. 2013, section 3: a cached row is good if its clock is at least c - s). Without the cache it
    fetches after every push and waits for the bound alone, as Li et al. 2014 (parameter server) do."""

    paper: ClassVar[str] = "Ho et al. 2013 (stale synchronous parallel), NIPS 26"
    summary: ClassVar[str] = "nobody is more than s gradients ahead of the slowest, nor reads weights that are older"
    invariant: ClassVar[str] = "the lead never exceeds s; s = 0 is synchronous, cache=0 without a bound asynchronous"

    s: int = 3
    cache: int = option(1, 0, 1)

    def begin(self, world: World) -> None:
        self.waiting: list[Worker] = []
        self.taken = [0] * world.count  # gradients of each worker that the server has
        self.longest = 0  # lead that anybody had
        self.slowest = 0

    def on_gradient(self, world: World, worker: Worker, gradient: Vector) -> None:
        good = bool(self.cache) and worker.clock - worker.cache_clock <= self.s
        world.push(worker, gradient, asks=not good)
        if good:
            worker.weights = worker.weights - world.rate / world.count * gradient
            worker.version += 1
            world.compute(worker)

    def stepped(self, world: World, push: Push) -> None:
        self.taken[push.worker.number] = push.clock
        if push.asks:
            self.waiting.append(push.worker)
        else:
            self.longest = max(self.longest, push.clock - self.slowest)
        self.release(world)

    def on_leave(self, world: World, worker: Worker) -> None:
        self.waiting = [one for one in self.waiting if one is not worker]
        self.release(world)

    def on_return(self, world: World, worker: Worker) -> None:
        world.reply([worker], self.slowest)

    def on_join(self, world: World, worker: Worker) -> None:
        worker.clock = self.taken[worker.number] = self.slowest
        world.reply([worker], self.slowest)

    def release(self, world: World) -> None:
        """Let go all who are not too far ahead."""
        self.slowest = min((self.taken[worker.number] for worker in world.members()), default=self.slowest)
        free = [worker for worker in self.waiting if self.taken[worker.number] - self.slowest <= self.s]
        if free:
            self.longest = max(self.longest, *(self.taken[worker.number] - self.slowest for worker in free))
            self.waiting = [worker for worker in self.waiting if worker not in free]
            world.reply(free, self.slowest)
