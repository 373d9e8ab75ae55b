"""An ensemble: independent runs, whose answers are averaged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from foretell.learning.algorithms.averaging import Averaging
from foretell.learning.vector import Vector

if TYPE_CHECKING:
    from foretell.learning.world import World


@dataclass
class Ensemble(Averaging):
    paper: ClassVar[str] = "Hansen and Salamon 1990 (neural network ensembles), doi 10.1109/34.58871"
    summary: ClassVar[str] = "independent runs, their answers averaged"
    invariant: ClassVar[str] = "nothing travels; by convexity no worse than the mean of its members"
    handed: ClassVar[str] = "each"

    def begin(self, world: World) -> None:
        """Everybody begins elsewhere: copies that begin alike stay too much alike."""
        for worker in world.workers:
            worker.weights = world.problem.start(worker.number + 1)

    def models(self, world: World) -> Sequence[Vector]:
        return [worker.weights for worker in world.members()]
