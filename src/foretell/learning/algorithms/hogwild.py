"""Hogwild: workers write into shared weights without locks and without waiting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from foretell.learning.algorithm import OneByOne
from foretell.learning.vector import Vector

if TYPE_CHECKING:
    from foretell.learning.world import Worker, World


@dataclass
class Hogwild(OneByOne):
    """A worker reads the shared weights when it begins and adds its step when it ends: nothing travels, and elements
    that it does not touch stay as others write them."""

    paper: ClassVar[str] = "Recht et al. 2011 (HOGWILD!), arXiv 1106.5730"
    summary: ClassVar[str] = "shared weights, no locks, no messages"
    invariant: ClassVar[str] = "additions commute: no write is lost"
    apart: ClassVar[bool] = False

    def on_gradient(self, world: World, worker: Worker, gradient: Vector) -> None:
        from foretell.learning.world import Push

        push = Push(worker, gradient, worker.weights, worker.version, worker.clock)
        self.step(world, [push], self.share(world, push))
        worker.weights, worker.version = world.server.weights, world.server.version
        world.compute(worker)
