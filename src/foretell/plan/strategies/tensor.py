"""Tensor parallelism: every rank takes some heads and features of each layer.

A layer whose inputs arrive in shares takes those inputs and gives summands of all its outputs; any
other gives a share of its outputs. With `sp` activations between such pairs lie in shares of the sequence.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from foretell.plan.facts import facts
from foretell.plan.refusal import Refusal
from foretell.plan.strategy import MeshAxis, Splitting, Strategy
from foretell.plan.syntax import Choice, Option

if TYPE_CHECKING:
    from foretell.plan.setting import Setting


class Tensor(Strategy, frozen=True, kw_only=True, tag="tensor"):
    """Some heads and features of each layer on each rank."""

    word: ClassVar[str] = "tp"
    summary: ClassVar[str] = "every rank takes some heads and features of each layer"
    references: ClassVar[tuple[str, ...]] = (
        "Shoeybi et al. 2019 (Megatron-LM), arXiv 1909.08053",
        "Korthikanti et al. 2022 (sequence parallelism), arXiv 2205.05198",
    )
    syntax: ClassVar[tuple[Option, ...]] = (Choice("sequence", {"sp": True}),)
    example: ClassVar[str] = "tp8:sp"

    sequence: bool = False

    def axes(self) -> tuple[MeshAxis, ...]:
        between = "sequence" if self.sequence else ""
        return (MeshAxis("tp", self.ranks, Splitting(weighted=("in", "out"), flows=True, between=between)),)

    def refusals(self, setting: Setting) -> Iterator[Refusal]:
        found = facts(setting.graph)
        if self.sequence and found.sequence % self.ranks:
            why = f"a sequence of {found.sequence} is not a multiple of tp{self.ranks}, which shares it between layers"
            yield Refusal(
                "sequence divides",
                why,
                f"tp{self.ranks} without sp, or --seq {self.ranks * -(-found.sequence // self.ranks)}",
            )
