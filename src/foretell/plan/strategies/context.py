"""Context parallelism: every rank takes some of the positions of each sequence.

Only attention looks at other positions. Either keys and values go round (`ring`), or attention has
all positions of some heads instead (`alltoall`).
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


class Context(Strategy, frozen=True, kw_only=True, tag="context"):
    """Some positions of each sequence on each rank."""

    word: ClassVar[str] = "cp"
    summary: ClassVar[str] = "every rank takes some of the positions of each sequence"
    references: ClassVar[tuple[str, ...]] = (
        "Liu et al. 2023 (ring attention), arXiv 2310.01889",
        "Jacobs et al. 2023 (DeepSpeed Ulysses), arXiv 2309.14509",
    )
    syntax: ClassVar[tuple[Option, ...]] = (Choice("exchange", {"ring": "ring", "alltoall": "alltoall"}),)
    example: ClassVar[str] = "cp4:ring"

    exchange: str = "ring"

    def axes(self) -> tuple[MeshAxis, ...]:
        attention = {"ring": "rotate", "alltoall": "heads"}[self.exchange]
        return (MeshAxis("cp", self.ranks, Splitting(dim="sequence", attention=attention)),)

    def refusals(self, setting: Setting) -> Iterator[Refusal]:
        length = facts(setting.graph).sequence
        if not length:
            why = f"cp{self.ranks}: {setting.graph.name} has no attention over a sequence"
            yield Refusal("positions to divide", why, "the plan without cp")
        elif length % self.ranks:
            near = self.ranks * -(-length // self.ranks)
            why = f"a sequence of {length} is not a multiple of cp{self.ranks}"
            yield Refusal("sequence divides", why, f"--seq {near}")
        tensor = setting.plan.axis("tp")
        shares = self.ranks * (tensor.ranks if tensor else 1)
        heads, by = facts(setting.graph).limit("tensor")
        if self.exchange == "alltoall" and heads % shares:
            why = f"{heads} key and value heads (of {by}) are not a multiple of the {shares} ranks that share them"
            yield Refusal("heads divide", why, f"cp{self.ranks}:ring")
