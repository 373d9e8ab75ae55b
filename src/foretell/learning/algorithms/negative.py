"""Negative momentum: what staleness adds to momentum is taken from the explicit one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from foretell.learning.algorithm import OneByOne

if TYPE_CHECKING:
    from foretell.learning.world import World


@dataclass
class NegativeMomentum(OneByOne):
    """Asynchrony of n workers acts as a momentum of 1 - 1/n; the explicit one is what is left of `total`."""

    paper: ClassVar[str] = "Mitliagkas et al. 2016 (asynchrony begets momentum), arXiv 1605.09774"
    summary: ClassVar[str] = "explicit momentum below 0 makes up for that of staleness"
    invariant: ClassVar[str] = "one worker has the momentum asked for; explicit + 1 - 1/n = total"

    total: float = 0.5

    def begin(self, world: World) -> None:
        world.momentum = self.total - (1.0 - 1.0 / world.count)
