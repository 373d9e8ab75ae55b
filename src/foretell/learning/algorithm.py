"""What a worker does with a gradient, and what a server does with a message. One file an algorithm.

Two families, as in Langer et al. 2020 (arXiv 2007.03970, section 3.2):

    Central     one copy of the weights counts, the server's; workers make gradients
    Decentral   every worker trains a copy of its own, and copies are merged
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from foretell.learning.vector import Vector, mean

if TYPE_CHECKING:
    from foretell.learning.world import Push, Worker, World


@dataclass
class Algorithm:
    """Options are fields; what it remembers while it runs is set up in `begin`."""

    paper: ClassVar[str]
    summary: ClassVar[str]
    invariant: ClassVar[str]
    topology: ClassVar[str] = "single"  # where nobody says another
    barrier: ClassVar[bool] = False  # everybody waits for everybody: a collective can carry it
    elastic: ClassVar[bool] = True  # workers may join and leave
    apart: ClassVar[bool] = True  # no side reads what another remembers: each can be a process of its own

    handed: ClassVar[str] = (
        "mean"  # of copies, what real workers hand over: their mean, each its own, the best, the first
    )

    @property
    def least(self) -> int:
        """Gradients of each worker, with fewer of which it does not come to its end."""
        return 1

    def begin(self, world: World) -> None:
        """Before the clock starts."""

    def start(self, world: World, worker: Worker) -> None:
        """A worker has its first weights."""
        world.compute(worker)

    def on_gradient(self, world: World, worker: Worker, gradient: Vector) -> None:
        raise NotImplementedError

    def on_push(self, world: World, push: Push) -> None:
        """The server has what a worker pushed."""
        raise NotImplementedError

    def on_reply(self, world: World, worker: Worker, weights: Vector, version: int) -> None:
        """A worker has what the server replied."""
        worker.weights, worker.version = weights, version
        world.compute(worker)

    def on_message(self, world: World, worker: Worker, sender: int, said: Any) -> None:
        """A worker has what another one sent."""
        raise NotImplementedError

    def on_return(self, world: World, worker: Worker) -> None:
        """A worker is there again after a failure."""
        world.compute(worker)

    def on_join(self, world: World, worker: Worker) -> None:
        world.reply([worker])

    def on_leave(self, world: World, worker: Worker) -> None:
        """A worker is gone; whoever waited for it goes on."""

    def models(self, world: World) -> Sequence[Vector]:
        """What would be handed over if training ended now."""
        return [world.server.weights]


@dataclass
class Central(Algorithm):
    """Workers push gradients; the server steps and replies."""

    def on_gradient(self, world: World, worker: Worker, gradient: Vector) -> None:
        world.push(worker, gradient)

    def on_return(self, world: World, worker: Worker) -> None:
        world.reply([worker])

    def step(self, world: World, pushes: Sequence[Push], share: float) -> None:
        """Take the gradients in, each at its share of the rate."""
        world.absorb(pushes, world.rate * share)


@dataclass
class OneByOne(Central):
    """Each gradient is a step as soon as it is there. Of n workers each has an n-th of the rate, so that all of them
    together move as far as one synchronous step."""

    def on_push(self, world: World, push: Push) -> None:
        world.serve(1, partial(self.finish, world, push))

    def finish(self, world: World, push: Push) -> None:
        self.step(world, [push], self.share(world, push))
        self.stepped(world, push)

    def share(self, world: World, push: Push) -> float:
        return 1.0 / world.count

    def stepped(self, world: World, push: Push) -> None:
        world.reply([push.worker])


@dataclass
class Rounds(Algorithm):
    """What everybody pushed is taken in at once, when it is enough."""

    barrier: ClassVar[bool] = True

    def begin(self, world: World) -> None:
        self.waiting: list[Push] = []

    def enough(self, world: World) -> int:
        return world.present

    def on_push(self, world: World, push: Push) -> None:
        if push.worker.present:  # else a round would end without somebody who is there
            self.waiting.append(push)
            self.check(world)

    def on_leave(self, world: World, worker: Worker) -> None:
        self.waiting = [push for push in self.waiting if push.worker is not worker]
        self.check(world)

    def check(self, world: World) -> None:
        if self.waiting and len(self.waiting) >= self.enough(world):
            pushes, self.waiting = self.waiting, []
            world.serve(len(pushes), partial(self.finish, world, pushes))

    def finish(self, world: World, pushes: list[Push]) -> None:
        self.merge(world, pushes)
        world.reply([push.worker for push in pushes])

    def merge(self, world: World, pushes: Sequence[Push]) -> None:
        raise NotImplementedError


@dataclass
class Decentral(Algorithm):
    """Every worker steps on its own weights, at the whole rate."""

    topology: ClassVar[str] = "mesh"

    def on_gradient(self, world: World, worker: Worker, gradient: Vector) -> None:
        world.local_step(worker, gradient)
        self.stepped(world, worker)

    def stepped(self, world: World, worker: Worker) -> None:
        raise NotImplementedError

    def on_join(self, world: World, worker: Worker) -> None:
        worker.weights = mean([other.weights for other in world.members() if other is not worker] or [worker.weights])
        world.compute(worker)

    def models(self, world: World) -> Sequence[Vector]:
        return [mean([worker.weights for worker in world.members()])]
