"""Post-local SGD: synchronous at first, local later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from foretell.learning.algorithms.local import Local

if TYPE_CHECKING:
    from foretell.learning.world import World


@dataclass
class PostLocal(Local):
    paper: ClassVar[str] = "Lin et al. 2020 (don't use large mini-batches, use local SGD), arXiv 1808.07217"
    summary: ClassVar[str] = "a mean after each step for some rounds, then every tau steps"
    invariant: ClassVar[str] = "until the switch it is synchronous"

    switch: int = 100  # rounds

    def period(self, world: World) -> int:
        return 1 if world.server.version < self.switch else self.tau
