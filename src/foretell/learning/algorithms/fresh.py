"""Staleness-aware rates: a gradient counts the less the staler it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from foretell.learning.algorithm import OneByOne

if TYPE_CHECKING:
    from foretell.learning.world import Push, World


@dataclass
class StalenessAware(OneByOne):
    """The rate of a synchronous step of all over the staleness, and no more than a worker's share of it where that is
    what asynchronous training has: the n-softsync rule, in updates."""

    paper: ClassVar[str] = "Zhang et al. 2016 (staleness-aware async-SGD), arXiv 1511.05950"
    summary: ClassVar[str] = "the rate of a gradient goes down with its staleness"
    invariant: ClassVar[str] = "rate x staleness is the same for all stale gradients; a fresh one has the whole rate"

    def share(self, world: World, push: Push) -> float:
        return 1.0 / max(1, world.server.version - push.version)
