"""Stale synchronous: asynchronous, but nobody is more than s gradients ahead of the slowest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from foretell.learning.algorithm import OneByOne

if TYPE_CHECKING:
    from foretell.learning.world import Push, Worker, World


@dataclass
class StaleSynchronous(OneByOne):
    paper: ClassVar[str] = "Ho et al. 2013 (stale synchronous parallel), NIPS 26"
    summary: ClassVar[str] = "nobody is more than s gradients ahead of the slowest"
    invariant: ClassVar[str] = "the lead never exceeds s; s = 0 is synchronous, s without end asynchronous"

    s: int = 3

    def begin(self, world: World) -> None:
        self.waiting: list[Worker] = []
        self.taken = [0] * world.count  # gradients of each worker that the server has
        self.longest = 0  # lead that anybody had
        self.slowest = 0

    def stepped(self, world: World, push: Push) -> None:
        self.taken[push.worker.number] = push.clock
        self.waiting.append(push.worker)
        self.release(world)

    def on_leave(self, world: World, worker: Worker) -> None:
        self.waiting = [one for one in self.waiting if one is not worker]
        self.release(world)

    def on_join(self, world: World, worker: Worker) -> None:
        worker.clock = self.taken[worker.number] = self.slowest
        world.reply([worker])

    def release(self, world: World) -> None:
        """Let go all who are not too far ahead."""
        self.slowest = min(self.taken[worker.number] for worker in world.members())
        free = [worker for worker in self.waiting if self.taken[worker.number] - self.slowest <= self.s]
        if free:
            self.longest = max(self.longest, *(self.taken[worker.number] - self.slowest for worker in free))
            self.waiting = [worker for worker in self.waiting if worker not in free]
            world.reply(free)
