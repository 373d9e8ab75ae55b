"""The 75 % rule: asynchronous inside an epoch, which ends when most of its samples are seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from foretell.learning.algorithm import OneByOne
from foretell.learning.option import SOME, option

if TYPE_CHECKING:
    from foretell.learning.world import Push, Worker, World


@dataclass
class SeventyFive(OneByOne):
    """Each worker has `tau` gradients an epoch. The epoch ends with `most` of all; who has done its own waits, and
    who has not goes on with the next."""

    paper: ClassVar[str] = "Chilimbi et al. 2014 (Project Adam), OSDI 14"
    summary: ClassVar[str] = "epochs end when 75 % of the samples are seen"
    invariant: ClassVar[str] = "an epoch has at least `most` of n tau gradients; nobody makes more than tau"

    tau: int = option(8, 1)
    most: float = option(0.75, SOME, 1)

    def begin(self, world: World) -> None:
        self.epoch(world)
        self.epochs = 0
        self.waiting: list[Worker] = []

    def epoch(self, world: World) -> None:
        self.seen = 0
        self.own = [0] * world.count

    def stepped(self, world: World, push: Push) -> None:
        self.seen += 1
        self.own[push.worker.number] += 1
        if self.own[push.worker.number] < self.tau:
            world.reply([push.worker])
        else:
            self.waiting.append(push.worker)
        self.end(world)

    def on_leave(self, world: World, worker: Worker) -> None:
        self.waiting = [one for one in self.waiting if one is not worker]
        self.end(world)

    def end(self, world: World) -> None:
        if self.seen >= self.most * self.tau * world.present:
            free, self.waiting = self.waiting, []
            self.epoch(world)
            self.epochs += 1
            world.reply(free)
