"""Spatial parallelism: every rank takes a part of each image or volume.

The ranks are a grid over the extents, outermost first: `spatial4` cuts the first one into four,
`spatial2x2` the first two into two each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from foretell.plan.refusal import Refusal
from foretell.plan.strategies._limit import limited
from foretell.plan.strategy import MeshAxis, Splitting, Strategy

if TYPE_CHECKING:
    from foretell.plan.setting import Setting


class Spatial(Strategy, frozen=True, kw_only=True, tag="spatial"):
    """A part of each image on each rank."""

    word: ClassVar[str] = "spatial"
    summary: ClassVar[str] = "every rank takes a part of each image"
    references: ClassVar[tuple[str, ...]] = (
        "Dryden et al. 2019 (spatial parallelism), arXiv 1903.06681",
        "Kahira et al. 2021 (the oracle), arXiv 2104.09075",
        "Oyama et al. 2020 (3D CNNs), arXiv 2007.12856",
    )
    example: ClassVar[str] = "spatial2x2"
    grid: ClassVar[bool] = True
    parts: ClassVar[bool] = True

    grid_ranks: tuple[int, ...] = ()
    only: str = ""

    def axes(self) -> tuple[MeshAxis, ...]:
        grid = self.grid_ranks or (self.ranks,)
        names = ("spatial",) if len(grid) == 1 else tuple(f"spatial.{at}" for at in range(len(grid)))
        return tuple(
            MeshAxis(name, ranks, Splitting(dim=f"extent {at}", only=self.only))
            for at, (name, ranks) in enumerate(zip(names, grid, strict=True))
        )

    def refusals(self, setting: Setting) -> Iterator[Refusal]:
        yield from limited(self, setting, "spatial")
