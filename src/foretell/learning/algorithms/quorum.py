"""A quorum: every k gradients make a step; late ones count in the next, stale as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from foretell.learning.algorithm import Central, Rounds
from foretell.learning.option import option

if TYPE_CHECKING:
    from foretell.learning.world import Push, World


@dataclass
class Quorum(Rounds, Central):
    paper: ClassVar[str] = "Dutta et al. 2018 (slow and stale gradients can win the race; K-async), arXiv 1803.01113"
    summary: ClassVar[str] = "every k gradients make a step, late ones in the next"
    invariant: ClassVar[str] = "no gradient is lost; k = n is synchronous"
    barrier: ClassVar[bool] = False

    k: int = option(2, 1)

    def enough(self, world: World) -> int:
        return min(self.k, world.present)

    def merge(self, world: World, pushes: Sequence[Push]) -> None:
        self.step(world, pushes, 1.0 / world.count)
