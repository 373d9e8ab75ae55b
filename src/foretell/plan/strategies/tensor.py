"""Tensor parallelism: every rank takes some heads and features of each layer.

Layers alternate: column-sharded weights make sharded outputs, and the row-sharded weights after them partial sums of
whole ones. With `sp` (sequence parallelism) activations between such pairs are sharded along the sequence.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from foretell.plan.facts import facts
from foretell.plan.refusal import Refusal
from foretell.plan.repair import fewer, replaced, with_fields
from foretell.plan.strategy import MeshAxis, Splitting, Strategy
from foretell.plan.syntax import Option, WordChoice
from foretell.plan.together import shares, sharing

if TYPE_CHECKING:
    from foretell.plan.setting import Setting


class Tensor(Strategy, frozen=True, kw_only=True, tag="tensor"):
    """Some heads and features of each layer on each rank."""

    word: ClassVar[str] = "tp"
    place: ClassVar[int] = 90
    summary: ClassVar[str] = "every rank takes some heads and features of each layer"
    references: ClassVar[tuple[str, ...]] = (
        "Shoeybi et al. 2019 (Megatron-LM), arXiv 1909.08053",
        "Korthikanti et al. 2022 (sequence parallelism), arXiv 2205.05198",
    )
    syntax: ClassVar[tuple[Option, ...]] = (WordChoice("sequence", {"sp": True}),)
    example: ClassVar[str] = "tp8:sp"

    sequence: bool = False

    def axes(self) -> tuple[MeshAxis, ...]:
        between = "sequence" if self.sequence else ""
        return (MeshAxis("tp", self.ranks, Splitting(weighted=("in", "out"), flows=True, between=between)),)

    def refusals(self, setting: Setting) -> Iterator[Refusal]:
        if not self.sequence or self.ranks == 1:
            return
        found = facts(setting.graph)
        without = replaced(setting.plan, self, with_fields(self, sequence=False))
        if not found.sequence:
            why = f"tp{self.ranks}:sp: {setting.graph.name} has no sequence to share between layers"
            yield Refusal("positions to divide", why, mends=without)
            return
        ways = shares(setting.plan, "sequence")
        if found.sequence % ways:
            axes = " x ".join(f"{axis.name}{axis.ranks}" for axis in sharing(setting.plan, "sequence"))
            among = axes if ways == self.ranks else f"{axes} = {ways}"
            why = f"a sequence of {found.sequence} is not a multiple of {among}, which share it between layers"
            narrower = fewer(self, lambda ranks: found.sequence % (ways // self.ranks * ranks) == 0)
            mends = (*without, *replaced(setting.plan, self, *narrower))
            yield Refusal("sequence divides", why, found.longer(ways), mends)
