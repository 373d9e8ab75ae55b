"""Spatial parallelism: every rank takes a part of each image or volume.

The ranks are a grid over the extents, outermost first: `spatial4` cuts the first one into four,
`spatial2x2` the first two into two each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import msgspec

from foretell.plan.facts import extents
from foretell.plan.refusal import Refusal
from foretell.plan.repair import divisors, removed, replaced
from foretell.plan.strategies._rest import REST, refused_rest
from foretell.plan.strategy import MeshAxis, Splitting, Strategy
from foretell.plan.syntax import Option

if TYPE_CHECKING:
    from foretell.model.graph import Graph
    from foretell.plan.setting import Setting


class Spatial(Strategy, frozen=True, kw_only=True, tag="spatial"):
    """A part of each image on each rank."""

    word: ClassVar[str] = "spatial"
    place: ClassVar[int] = 70
    summary: ClassVar[str] = "every rank takes a part of each image"
    references: ClassVar[tuple[str, ...]] = (
        "Dryden et al. 2019 (spatial parallelism), arXiv 1903.06681",
        "Kahira et al. 2021 (the oracle), arXiv 2104.09075",
        "Oyama et al. 2020 (3D CNNs), arXiv 2007.12856",
    )
    example: ClassVar[str] = "spatial2x2"
    grid: ClassVar[bool] = True
    parts: ClassVar[bool] = True

    syntax: ClassVar[tuple[Option, ...]] = (REST,)

    grid_ranks: tuple[int, ...] = ()
    only: str = ""
    rest: str = ""  # what ranks divide in the rest of the model: nothing, or the samples

    @classmethod
    def choices(cls, world: int, graph: Graph, node: int) -> Iterator[Spatial]:
        """Every grid over the extents."""
        yield cls(ranks=world)
        for grid in _factors(world, tuple(extent.size for extent in extents(graph))):
            cut = _trimmed(grid)
            if len(cut) > 1:
                yield cls(ranks=world, grid_ranks=cut)

    def axes(self) -> tuple[MeshAxis, ...]:
        grid = self.grid_ranks or (self.ranks,)
        names = ("spatial",) if len(grid) == 1 else tuple(f"spatial.{at}" for at in range(len(grid)))
        return tuple(
            MeshAxis(name, ranks, Splitting(dim=f"extent {at}", only=self.only, rest=self.rest))
            for at, (name, ranks) in enumerate(zip(names, grid, strict=True))
        )

    def refusals(self, setting: Setting) -> Iterator[Refusal]:
        yield from refused_rest(self, self.only, self.rest, setting)
        if self.ranks == 1:
            return
        found, plan = extents(setting.graph, self.only), setting.plan
        grid = self.grid_ranks or (self.ranks,)
        said = f"spatial{'x'.join(map(str, grid))}"
        if not found:
            part = f"[{self.only}] of {setting.graph.name}" if self.only else setting.graph.name
            yield Refusal(
                "spatial limit", f"{said}: {part} has no spatial dimension to split", mends=removed(plan, self)
            )
            return
        mends = replaced(plan, self, *self._grids(tuple(extent.size for extent in found)))
        if len(grid) > len(found):
            why = f"{said} cuts {len(grid)} extents, and {found[0].path} has {len(found)}"
            yield Refusal("extents to cut", why, mends=mends)
            return
        for ranks, extent in zip(grid, found, strict=False):
            if ranks > extent.size:
                why = f"{said} cuts the {extent.name} into {ranks}, and it is {extent.size} at {extent.where}"
                part = f"a part of the model, {said}[PATH], where it is {ranks} or more"
                yield Refusal("spatial limit", why, part, mends)

    def _grids(self, sizes: tuple[int, ...]) -> Iterator[Spatial]:
        """Grids that fit extents of these sizes: of as many ranks, then of fewer; as square as can be comes last."""
        for ranks in divisors(self.ranks)[:-1]:
            for grid in _factors(ranks, sizes):
                cut = _trimmed(grid)
                kept = cut if len(cut) > 1 else ()
                yield msgspec.structs.replace(self, ranks=ranks, grid_ranks=kept)


def _trimmed(grid: tuple[int, ...]) -> tuple[int, ...]:
    """A grid without the extents at its end that are not cut."""
    return grid[: max((at for at, share in enumerate(grid) if share > 1), default=0) + 1]


def _factors(ranks: int, sizes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Every way to write a number as a product with a factor for each extent, none larger than its extent."""
    if not sizes:
        yield from [()] if ranks == 1 else []
        return
    for first in divisors(ranks):
        if first <= sizes[0]:
            yield from ((first, *rest) for rest in _factors(ranks // first, sizes[1:]))
