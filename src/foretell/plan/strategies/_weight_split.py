"""What filter and channel parallelism have in common: one dim of every weight in shares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Self

from foretell.plan.facts import convolves, dense_end
from foretell.plan.refusal import Refusal
from foretell.plan.strategies._limit import limited
from foretell.plan.strategies._rest import REST, refused_rest
from foretell.plan.strategy import MeshAxis, Splitting, Strategy
from foretell.plan.syntax import Option

if TYPE_CHECKING:
    from foretell.model.graph import Graph
    from foretell.plan.setting import Setting


class WeightSplit(Strategy, frozen=True, kw_only=True):
    """Some of the inputs or of the outputs of each layer on each rank; with `data`, other samples in the other layers
    (Krizhevsky's one weird trick: convolutions by samples, dense layers by weights)."""

    place: ClassVar[int] = 80
    references: ClassVar[tuple[str, ...]] = (
        "Dryden et al. 2019 (channel and filter parallelism), doi 10.1145/3295500.3356207",
        "Kahira et al. 2021 (the oracle), arXiv 2104.09075",
        "Krizhevsky 2014 (samples in convolutions, weights in dense layers), arXiv 1404.5997",
    )
    parts: ClassVar[bool] = True
    dim: ClassVar[str]  # of the weights

    syntax: ClassVar[tuple[Option, ...]] = (REST,)

    only: str = ""
    rest: str = ""  # what ranks divide in the rest of the model: nothing, or the samples

    @classmethod
    def choices(cls, world: int, graph: Graph, node: int) -> Iterator[Self]:
        """For models with convolutions: of dense layers alone, a tensor axis makes less travel.

        All layers, or the dense ones at the end with other samples in the convolutions before them.
        """
        if convolves(graph):
            yield cls(ranks=world)
        if dense_end(graph):
            yield cls(ranks=world, only=dense_end(graph), rest="sample")

    def axes(self) -> tuple[MeshAxis, ...]:
        return (MeshAxis(self.word, self.ranks, Splitting(weighted=(self.dim,), only=self.only, rest=self.rest)),)

    def refusals(self, setting: Setting) -> Iterator[Refusal]:
        yield from refused_rest(self, self.only, self.rest, setting)
        yield from limited(self, setting, self.word, f"{self.word}s")
