"""Ring averaging: every rank trains its own copy and averages it with both neighbours after each step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from foretell.plan.placement import Mixed
from foretell.plan.refusal import Refusal
from foretell.plan.strategies._versions import one_way
from foretell.plan.strategy import Exchange, MeshAxis, Splitting, Strategy

if TYPE_CHECKING:
    from foretell.plan.setting import Setting


class Ring(Strategy, frozen=True, kw_only=True, tag="ring"):
    """Some of the samples on each rank, weights averaged with those of two neighbours."""

    word: ClassVar[str] = "ring"
    searched: ClassVar[bool] = False
    summary: ClassVar[str] = "every rank trains its own copy and averages it with two neighbours"
    references: ClassVar[tuple[str, ...]] = ("Lian et al. 2017 (decentralised SGD), arXiv 1705.09056",)
    example: ClassVar[str] = "ring8"

    def axes(self) -> tuple[MeshAxis, ...]:
        return (MeshAxis("ring", self.ranks, Splitting(dim="sample"), exchange=Exchange(own=True, weights=Mixed(2))),)

    def refusals(self, setting: Setting) -> Iterator[Refusal]:
        yield from one_way(self, setting)
