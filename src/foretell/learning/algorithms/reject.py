"""Rejecting instead of stalling: gradients that are too stale are thrown away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from foretell.learning.algorithm import OneByOne

if TYPE_CHECKING:
    from foretell.learning.world import Push, World


@dataclass
class Rejecting(OneByOne):
    paper: ClassVar[str] = "Langer et al. 2020, section 3.3 (rejection instead of stalling), arXiv 2007.03970"
    summary: ClassVar[str] = "gradients staler than s are thrown away"
    invariant: ClassVar[str] = "no gradient staler than s is taken in; s without end is asynchronous"

    s: int = 3

    def begin(self, world: World) -> None:
        self.rejected = 0

    def finish(self, world: World, push: Push) -> None:
        if world.server.version - push.version <= self.s:
            super().finish(world, push)
        else:
            self.rejected += 1
            self.stepped(world, push)
