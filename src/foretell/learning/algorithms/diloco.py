"""DiLoCo: many steps of each worker's own, then one outer step, with momentum, along what they moved in the mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from foretell.learning.algorithms.local import Local
from foretell.learning.option import option
from foretell.learning.vector import Vector

if TYPE_CHECKING:
    from foretell.learning.world import Push, World


@dataclass
class DiLoCo(Local):
    """What all moved is taken as a gradient, and Nesterov's rule makes the step. Inner steps are those of SGD here."""

    paper: ClassVar[str] = "Douillard et al. 2023 (DiLoCo), arXiv 2311.08105"
    summary: ClassVar[str] = "tau steps of each worker's own, then an outer step with momentum"
    invariant: ClassVar[str] = "with an outer rate of 1 and no outer momentum it is local SGD"

    outer: float = option(0.7, 0)  # rate of the outer step, and its momentum: the paper's
    momentum: float = option(0.9, 0, 1)

    def begin(self, world: World) -> None:
        super().begin(world)
        self.velocity: Vector = world.server.weights * 0

    def merge(self, world: World, pushes: Sequence[Push]) -> None:
        before = world.server.weights
        super().merge(world, pushes)
        moved = before - world.server.weights
        self.velocity = self.momentum * self.velocity + moved
        world.server.weights = before - self.outer * (self.momentum * self.velocity + moved)
