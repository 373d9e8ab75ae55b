"""Eager stale synchronous: the server sends new weights before anybody asks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from foretell.learning.algorithms.ssp import StaleSynchronous
from foretell.learning.vector import Vector

if TYPE_CHECKING:
    from foretell.learning.world import Push, Worker, World


@dataclass
class EagerStaleSynchronous(StaleSynchronous):
    """Whoever may go on does so at once, with the newest weights it was sent and its own gradients since then."""

    paper: ClassVar[str] = "Dai et al. 2015 (ESSP), arXiv 1410.8043"
    summary: ClassVar[str] = "bounded as ssp; the server pushes weights to all when the slowest moves on"
    invariant: ClassVar[str] = "the lead never exceeds s; a worker's weights hold all of its own gradients"
    apart: ClassVar[bool] = False

    cache: int = field(default=1, init=False)  # there is always one

    def begin(self, world: World) -> None:
        super().begin(world)
        for worker in world.workers:
            worker.memory["newest"] = (worker.weights, 0, 0)  # weights, their version, own gradients in them

    def on_gradient(self, world: World, worker: Worker, gradient: Vector) -> None:
        own: list[tuple[int, Vector]] = worker.memory.setdefault("own", [])
        own.append((worker.clock, world.rate / world.count * gradient))
        world.push(worker, gradient, asks=False)
        self.go_on(world, worker)

    def stepped(self, world: World, push: Push) -> None:
        self.taken[push.worker.number] = push.clock
        self.longest = max(self.longest, push.clock - 1 - self.slowest)  # this gradient began with one less
        self.release(world)

    def release(self, world: World) -> None:
        before = self.slowest
        self.slowest = min((self.taken[worker.number] for worker in world.members()), default=before)
        if self.slowest > before:
            self.tell(world, world.members())

    def on_reply(self, world: World, worker: Worker, weights: Vector, version: int) -> None:
        held: dict[int, int] = worker.memory["held"]
        worker.memory["newest"] = (weights, version, held[version])
        worker.memory["held"] = {sent: count for sent, count in held.items() if sent >= version}  # others came before
        if worker.memory.get("waits"):
            self.go_on(world, worker)

    def on_return(self, world: World, worker: Worker) -> None:
        worker.memory["waits"] = True
        self.tell(world, [worker])

    def on_join(self, world: World, worker: Worker) -> None:
        worker.memory |= {"waits": True, "own": []}
        worker.clock = self.taken[worker.number] = self.slowest
        self.tell(world, [worker])

    def tell(self, world: World, workers: list[Worker]) -> None:
        """Send weights, and say how many of a worker's own gradients are in them as they leave."""
        for worker in workers:
            worker.memory.setdefault("held", {})[world.server.version] = self.taken[worker.number]
        world.reply(workers, self.slowest)

    def go_on(self, world: World, worker: Worker) -> None:
        """If the weights it was last sent are not too old."""
        if worker.ticket is not None or not worker.present:
            return
        worker.memory["waits"] = worker.clock - worker.cache_clock > self.s
        if worker.memory["waits"]:
            return
        newest, version, held = worker.memory["newest"]
        own = [(clock, step) for clock, step in worker.memory.get("own", ()) if clock > held]
        worker.memory["own"] = own
        worker.weights, worker.version = newest, version + len(own)
        for _, step in own:
            worker.weights = worker.weights - step
        world.compute(worker)
