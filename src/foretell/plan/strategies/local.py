"""Local SGD: every rank trains its own copy, and copies are averaged every `tau` steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from foretell.plan.refusal import Refusal
from foretell.plan.strategies._versions import one_way
from foretell.plan.strategy import Exchange, MeshAxis, Splitting, Strategy
from foretell.plan.syntax import Number, Option

if TYPE_CHECKING:
    from foretell.plan.setting import Setting


class Local(Strategy, frozen=True, kw_only=True, tag="local"):
    """Some of the samples on each rank, weights averaged now and then."""

    word: ClassVar[str] = "local"
    searched: ClassVar[bool] = False
    summary: ClassVar[str] = "every rank trains its own copy; all are averaged every tau steps"
    references: ClassVar[tuple[str, ...]] = (
        "Stich 2019 (local SGD), arXiv 1805.09767",
        "Lin et al. 2020 (post-local SGD), arXiv 1808.07217",
    )
    syntax: ClassVar[tuple[Option, ...]] = (Number("tau", "period", told=True),)
    example: ClassVar[str] = "local8:tau10"

    period: int = 1

    def axes(self) -> tuple[MeshAxis, ...]:
        return (
            MeshAxis("local", self.ranks, Splitting(dim="sample"), exchange=Exchange(own=True, period=self.period)),
        )

    def refusals(self, setting: Setting) -> Iterator[Refusal]:
        yield from one_way(self, setting)
