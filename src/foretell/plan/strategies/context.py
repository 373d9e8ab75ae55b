"""Context parallelism: every rank takes some of the positions of each sequence.

Only attention looks at other positions. Either keys and values go round (`ring`), or each rank gets all
positions of some heads for it (`alltoall`, Ulysses).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from foretell.plan.facts import facts
from foretell.plan.refusal import Refusal
from foretell.plan.repair import fewer, removed, replaced, with_fields
from foretell.plan.strategy import MeshAxis, Splitting, Strategy
from foretell.plan.syntax import Option, WordChoice
from foretell.plan.together import shares

if TYPE_CHECKING:
    from foretell.plan.setting import Setting


class Context(Strategy, frozen=True, kw_only=True, tag="context"):
    """Some positions of each sequence on each rank."""

    word: ClassVar[str] = "cp"
    place: ClassVar[int] = 60
    summary: ClassVar[str] = "every rank takes some of the positions of each sequence"
    references: ClassVar[tuple[str, ...]] = (
        "Liu et al. 2023 (ring attention), arXiv 2310.01889",
        "Jacobs et al. 2023 (DeepSpeed Ulysses), arXiv 2309.14509",
    )
    syntax: ClassVar[tuple[Option, ...]] = (WordChoice("exchange", {"ring": "ring", "alltoall": "alltoall"}),)
    example: ClassVar[str] = "cp4:ring"

    exchange: str = "ring"

    def axes(self) -> tuple[MeshAxis, ...]:
        attention = {"ring": "rotate", "alltoall": "heads"}[self.exchange]
        return (MeshAxis("cp", self.ranks, Splitting(dim="sequence", attention=attention)),)

    def refusals(self, setting: Setting) -> Iterator[Refusal]:
        if self.ranks == 1:
            return
        found, plan = facts(setting.graph), setting.plan
        if not found.heads:
            why = f"cp{self.ranks}: {setting.graph.name} has no attention over a sequence"
            yield Refusal("positions to divide", why, mends=removed(plan, self))
            return
        if found.sequence % self.ranks:
            why = f"a sequence of {found.sequence} is not a multiple of cp{self.ranks}"
            narrower = fewer(self, lambda ranks: found.sequence % ranks == 0)
            longer = found.longer(shares(plan, "sequence"))
            yield Refusal("sequence divides", why, longer, replaced(plan, self, *narrower))
        if self.exchange == "alltoall":
            yield from self._heads(setting)

    def _heads(self, setting: Setting) -> Iterator[Refusal]:
        """Attention has all positions of some heads: those that the tensor axis leaves are divided once more."""
        tensor = setting.plan.axis("tp")
        heads, by = facts(setting.graph).limit("tensor")
        ways = self.ranks * (tensor.ranks if tensor else 1)
        if heads % ways:
            why = f"{heads} key and value heads (of {by}) are not a multiple of the {ways} ranks that share them"
            narrower = fewer(self, lambda ranks: heads % (ways // self.ranks * ranks) == 0)
            mends = replaced(setting.plan, self, with_fields(self, exchange="ring"), *narrower)
            yield Refusal("heads divide", why, mends=mends)
