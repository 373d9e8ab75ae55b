"""Local SGD and SparkNet rounds: tau steps on a copy of one's own, then the mean of all copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from foretell.learning.algorithm import Rounds
from foretell.learning.option import option
from foretell.learning.vector import Vector, mean

if TYPE_CHECKING:
    from foretell.learning.world import Push, Worker, World


@dataclass
class Local(Rounds):
    paper: ClassVar[str] = "Moritz et al. 2016 (SparkNet), arXiv 1511.06051; Stich 2019 (local SGD), arXiv 1805.09767"
    summary: ClassVar[str] = "tau steps of each worker's own, then the mean of all"
    invariant: ClassVar[str] = "tau = 1 is synchronous; a tau-th of the bytes for each step"

    tau: int = option(8, 1)

    def period(self, world: World) -> int:
        return self.tau

    def begin(self, world: World) -> None:
        super().begin(world)
        self.steps = [0] * world.count  # of each worker since the last mean: its own count
        self.seen = [0] * world.count  # gradients of each that are in the last mean: the server's

    def on_gradient(self, world: World, worker: Worker, gradient: Vector) -> None:
        if self.steps[worker.number] == 0:
            worker.velocity = None  # each round begins with the mean, and with no momentum
        worker.weights = worker.weights - worker.rate * self.direction(world, worker, gradient)
        self.steps[worker.number] += 1
        if self.steps[worker.number] < self.period(world):
            world.compute(worker)
        else:
            world.push(worker, self.offered(world, worker), weights=True)

    def offered(self, world: World, worker: Worker) -> Vector:
        """What goes into the mean."""
        return worker.weights

    def on_reply(self, world: World, worker: Worker, weights: Vector, version: int) -> None:
        self.steps[worker.number] = 0
        super().on_reply(world, worker, weights, version)

    def direction(self, world: World, worker: Worker, gradient: Vector) -> Vector:
        if world.momentum:
            before = gradient * 0 if worker.velocity is None else worker.velocity
            worker.velocity = gradient = world.momentum * before + gradient
        return gradient

    def merge(self, world: World, pushes: Sequence[Push]) -> None:
        in_order = sorted(pushes, key=lambda push: push.worker.number)
        world.server.weights = mean([push.vector for push in in_order])
        world.server.version += 1
        taken = sum(push.clock - self.seen[push.worker.number] for push in pushes)
        for push in pushes:
            self.seen[push.worker.number] = push.clock
        world.learnt(taken)
