"""Gossip: every rank trains its own copy and averages it with a changing neighbour after each step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from foretell.plan.placement import Mixed
from foretell.plan.refusal import Refusal
from foretell.plan.strategies._versions import one_way
from foretell.plan.strategy import Exchange, MeshAxis, Splitting, Strategy

if TYPE_CHECKING:
    from foretell.plan.setting import Setting


class Gossip(Strategy, frozen=True, kw_only=True, tag="gossip"):
    """Some of the samples on each rank, weights averaged in pairs."""

    word: ClassVar[str] = "gossip"
    searched: ClassVar[bool] = False
    summary: ClassVar[str] = "every rank trains its own copy and averages it with one other"
    references: ClassVar[tuple[str, ...]] = (
        "Blot et al. 2016 (GoSGD), arXiv 1611.09726",
        "Assran et al. 2019 (stochastic gradient push), arXiv 1811.10792",
    )
    example: ClassVar[str] = "gossip8"

    def axes(self) -> tuple[MeshAxis, ...]:
        return (MeshAxis("gossip", self.ranks, Splitting(dim="sample"), exchange=Exchange(own=True, weights=Mixed(1))),)

    def refusals(self, setting: Setting) -> Iterator[Refusal]:
        yield from one_way(self, setting)
