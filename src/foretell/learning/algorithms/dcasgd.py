"""Delay compensation: a stale gradient is carried to the weights it will be applied to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from foretell.learning.algorithm import OneByOne

if TYPE_CHECKING:
    from foretell.learning.world import Push, World


@dataclass
class DelayCompensated(OneByOne):
    """g + strength * g * g * (w_now - w_read): a first-order step, with g * g in place of the Hessian's diagonal."""

    paper: ClassVar[str] = "Zheng et al. 2017 (DC-ASGD), arXiv 1609.08326"
    summary: ClassVar[str] = "stale gradients are corrected for how far the weights went"
    invariant: ClassVar[str] = "a fresh gradient is not changed; strength 0 is asynchronous"

    strength: float = 0.04

    def step(self, world: World, pushes: Sequence[Push], share: float) -> None:
        now = world.server.weights
        made = [one.vector + self.strength * one.vector**2 * (now - one.read) for one in pushes]
        world.absorb(pushes, world.rate * share, made)
