"""Gossip: now and then a worker sends its model to a random other one, with half of its weight in the mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from foretell.learning.algorithm import Decentral
from foretell.learning.option import option

if TYPE_CHECKING:
    from foretell.learning.world import Worker, World


@dataclass
class Gosgd(Decentral):
    paper: ClassVar[str] = "Blot et al. 2016 (GoSGD), arXiv 1611.09726; Langer et al. 2020, figure 17"
    summary: ClassVar[str] = "models go to random others, with a share of the mean"
    invariant: ClassVar[str] = "shares sum to 1, those on the way counted"

    p: float = option(0.1, 0, 1)

    def begin(self, world: World) -> None:
        self.shares = [1.0 / world.count] * world.count
        self.under_way = 0.0
        self.ways = [list(world.topology.neighbours(at, world.count)) for at in range(world.count)]

    @property
    def total(self) -> float:
        return sum(self.shares) + self.under_way

    def stepped(self, world: World, worker: Worker) -> None:
        if world.count > 1 and worker.draws.random() < self.p:
            self.give(world, worker, self.shares[worker.number] / 2)
        world.compute(worker)

    def give(self, world: World, worker: Worker, share: float) -> None:
        others = self.ways[worker.number]
        if world.present < world.count:
            others = [one for one in others if world.workers[one].present]
        if others:
            self.shares[worker.number] -= share
            self.under_way += share
            world.send(worker, others[int(worker.draws.integers(len(others)))], (worker.weights, share))

    def on_leave(self, world: World, worker: Worker) -> None:
        self.give(world, worker, self.shares[worker.number])

    def on_message(self, world: World, worker: Worker, sender: int, said: Any) -> None:
        weights, share = said
        self.under_way -= share
        own = self.shares[worker.number]
        worker.weights = (own * worker.weights + share * weights) / (own + share)
        self.shares[worker.number] = own + share
        if not worker.present:  # it left while this was on the way
            self.give(world, worker, self.shares[worker.number])
