"""LoRA: weights are frozen, and a product of two thin matrices beside each is trained."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from foretell.plan.mending import changed
from foretell.plan.policy import Policy
from foretell.plan.refusal import Refusal
from foretell.plan.syntax import Number, Option

if TYPE_CHECKING:
    from foretell.plan.setting import Setting


class Lora(Policy, frozen=True, kw_only=True, tag="lora"):
    """The rank of the trained matrices; 0 trains the weights themselves."""

    word: ClassVar[str] = "lora"
    bare: ClassVar[bool] = True
    place: ClassVar[int] = 100
    summary: ClassVar[str] = "train a product of this rank beside each frozen weight"
    references: ClassVar[tuple[str, ...]] = ("Hu et al. 2021 (LoRA), arXiv 2106.09685",)
    syntax: ClassVar[tuple[Option, ...]] = (Number("lora", "rank"),)
    example: ClassVar[str] = "+lora16"

    rank: int = 0

    def parameters(self, rows: int, columns: int) -> int:
        """What is trained for a frozen weight of rows x columns (Hu et al. 2021, section 4.1)."""
        return self.rank * (rows + columns)

    def refusals(self, setting: Setting) -> Iterator[Refusal]:
        if self.rank:
            why = f"+lora{self.rank}: the grammar knows adapters, but no program is written for them yet"
            yield Refusal("adapters", why, mends=changed(setting.plan, Lora()))
