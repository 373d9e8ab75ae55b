"""What filter and channel parallelism have in common: one dim of every weight in shares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Self

from foretell.plan.facts import convolves
from foretell.plan.refusal import Refusal
from foretell.plan.strategies._limit import limited
from foretell.plan.strategy import MeshAxis, Splitting, Strategy

if TYPE_CHECKING:
    from foretell.model.graph import Graph
    from foretell.plan.setting import Setting


class WeightSplit(Strategy, frozen=True, kw_only=True):
    """Some of the inputs or of the outputs of each layer on each rank."""

    place: ClassVar[int] = 80
    references: ClassVar[tuple[str, ...]] = (
        "Dryden et al. 2019 (channel and filter parallelism), doi 10.1145/3295500.3356207",
        "Kahira et al. 2021 (the oracle), arXiv 2104.09075",
    )
    parts: ClassVar[bool] = True
    dim: ClassVar[str]  # of the weights

    only: str = ""

    @classmethod
    def choices(cls, world: int, graph: Graph, node: int) -> Iterator[Self]:
        """For models with convolutions: of dense layers alone, a tensor axis makes less travel."""
        return super().choices(world, graph, node) if convolves(graph) else iter(())

    def axes(self) -> tuple[MeshAxis, ...]:
        return (MeshAxis(self.word, self.ranks, Splitting(weighted=(self.dim,), only=self.only)),)

    def refusals(self, setting: Setting) -> Iterator[Refusal]:
        yield from limited(self, setting, self.word, f"{self.word}s")
