"""Decentralised SGD: a step from the mean of one's own and the neighbours' models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from foretell.learning.algorithm import Decentral
from foretell.learning.vector import Vector

if TYPE_CHECKING:
    from foretell.learning.world import Worker, World


@dataclass
class Dpsgd(Decentral):
    """w_i <- sum_j W_ij w_j - rate g_i, with W_ij = 1 / (1 + the larger number of neighbours of i and j) (Metropolis):
    a matrix that is symmetric, with rows that sum to 1, on any graph; on a ring, thirds."""

    paper: ClassVar[str] = "Lian et al. 2017 (D-PSGD), arXiv 1705.09056; Langer et al. 2020, figure 15"
    summary: ClassVar[str] = "steps from the mean of the neighbours' models"
    invariant: ClassVar[str] = "with rate 0 copies meet at the rate of the mixing matrix; their mean never moves"
    topology: ClassVar[str] = "ring"
    elastic: ClassVar[bool] = False

    def begin(self, world: World) -> None:
        ways = [tuple(world.topology.neighbours(at, world.count)) for at in range(world.count)]
        self.ways = ways
        self.shares = [{to: 1.0 / (1 + max(len(near), len(ways[to]))) for to in near} for near in ways]
        self.heard: list[dict[tuple[int, int], Vector]] = [{} for _ in ways]  # by sender and round
        self.round = [0] * world.count
        self.made: list[Vector | None] = [None] * world.count

    def start(self, world: World, worker: Worker) -> None:
        """A round: tell the neighbours, and compute beside it."""
        for to in self.ways[worker.number]:
            world.send(worker, to, (self.round[worker.number], worker.weights))
        world.compute(worker)

    def on_return(self, world: World, worker: Worker) -> None:
        world.compute(worker)

    def on_gradient(self, world: World, worker: Worker, gradient: Vector) -> None:
        self.made[worker.number] = gradient
        self.end(world, worker)

    def on_message(self, world: World, worker: Worker, sender: int, said: Any) -> None:
        at, weights = said
        self.heard[worker.number][sender, at] = weights
        self.end(world, worker)

    def end(self, world: World, worker: Worker) -> None:
        """When gradient and neighbours of this round are there: the next one."""
        number = worker.number
        gradient, heard, at = self.made[number], self.heard[number], self.round[number]
        if gradient is None or any((to, at) not in heard for to in self.ways[number]):
            return
        mixed = worker.weights * (1.0 - sum(self.shares[number].values()))
        for to, share in self.shares[number].items():
            mixed = mixed + share * heard.pop((to, at))
        worker.weights = mixed
        self.made[number] = None
        self.round[number] += 1
        world.local_step(worker, gradient)
        self.start(world, worker)
