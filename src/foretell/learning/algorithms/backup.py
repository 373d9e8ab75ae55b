"""Backup workers: a round needs all but a few; who comes too late is left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from foretell.learning.algorithm import Central, Rounds

if TYPE_CHECKING:
    from foretell.learning.world import Push, World


@dataclass
class Backup(Rounds, Central):
    paper: ClassVar[str] = "Chen et al. 2016 (revisiting distributed synchronous SGD), arXiv 1604.00981"
    summary: ClassVar[str] = "a round ends without the last few, whose gradients are dropped"
    invariant: ClassVar[str] = "staleness is 0; with no spare workers it is synchronous"
    barrier: ClassVar[bool] = False

    spare: int = 1

    def enough(self, world: World) -> int:
        return max(1, world.present - self.spare)

    def on_push(self, world: World, push: Push) -> None:
        if push.version < world.server.version:  # of a round that is over
            world.reply([push.worker])
        else:
            super().on_push(world, push)

    def finish(self, world: World, pushes: list[Push]) -> None:
        """Who came while these were summed is too late as well."""
        late, self.waiting = self.waiting, []
        self.merge(world, pushes)
        world.reply([push.worker for push in (*pushes, *late)])

    def merge(self, world: World, pushes: Sequence[Push]) -> None:
        self.step(world, pushes, 1.0 / len(pushes))
