"""Synchronous SGD: all gradients of a round make one step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from foretell.learning.algorithm import Central, Rounds

if TYPE_CHECKING:
    from foretell.learning.world import Push, World


@dataclass
class Synchronous(Rounds, Central):
    paper: ClassVar[str] = "Langer et al. 2020, figure 6, arXiv 2007.03970"
    summary: ClassVar[str] = "all gradients of a round make one step"
    invariant: ClassVar[str] = "staleness is 0; one worker is serial SGD"

    def merge(self, world: World, pushes: Sequence[Push]) -> None:
        self.step(world, pushes, 1.0 / len(pushes))
