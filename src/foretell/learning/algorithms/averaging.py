"""Model averaging: nobody talks until the end, and then the mean counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from foretell.learning.algorithm import Decentral

if TYPE_CHECKING:
    from foretell.learning.world import Worker, World


@dataclass
class Averaging(Decentral):
    paper: ClassVar[str] = "Zinkevich et al. 2010 (parallelized stochastic gradient descent), NIPS 23"
    summary: ClassVar[str] = "independent runs, one mean at the end"
    invariant: ClassVar[str] = "nothing travels"

    def stepped(self, world: World, worker: Worker) -> None:
        world.compute(worker)
