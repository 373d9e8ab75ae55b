"""A queue by staleness: a busy server takes the stalest of those that wait first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from foretell.learning.algorithm import OneByOne

if TYPE_CHECKING:
    from foretell.learning.world import Push, World


@dataclass
class Priority(OneByOne):
    paper: ClassVar[str] = "Langer et al. 2020, section 3.3 (priority queue of waiting workers), arXiv 2007.03970"
    summary: ClassVar[str] = "a busy server takes the stalest gradient first"
    invariant: ClassVar[str] = "no gradient is lost; a server that is never busy makes it asynchronous"

    def begin(self, world: World) -> None:
        self.queue: list[Push] = []
        self.busy = False

    def on_push(self, world: World, push: Push) -> None:
        self.queue.append(push)
        if not self.busy:
            self.next(world)

    def next(self, world: World) -> None:
        if self.queue:
            self.busy = True
            world.serve(1, lambda: self.take(world))

    def take(self, world: World) -> None:
        """The stalest of those that came until now."""
        self.busy = False
        stalest = min(self.queue, key=lambda push: push.version)
        self.queue.remove(stalest)
        self.finish(world, stalest)
        self.next(world)
