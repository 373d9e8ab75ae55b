"""LoRA: weights are frozen, and a product of two thin matrices beside each is trained."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from foretell.model.adapters import adaptable, full_rank
from foretell.plan.facts import facts
from foretell.plan.policy import Policy
from foretell.plan.refusal import Refusal
from foretell.plan.repair import changed
from foretell.plan.syntax import Number, Option

if TYPE_CHECKING:
    from foretell.plan.setting import Setting


class Lora(Policy, frozen=True, kw_only=True, tag="lora"):
    """The rank of the trained matrices; 0 trains the weights themselves.

    All dense layers of the layers that repeat have an adapter, or those that `+adapt` names; all other weights are
    frozen: see `model/adapters.py`.
    """

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
        said = f"+lora{self.rank}: "
        weights = ((b.times, t.trainable) for b in setting.graph.blocks for t in b.tensors if t.role == "parameter")
        frozen = sum(times for times, trained in weights if not trained)
        if self.rank and not adaptable(setting.graph):
            why = f"{said}no layer of {setting.graph.name} that repeats has a dense weight to adapt"
            yield Refusal("adapters", why, mends=changed(setting.plan, Lora()))
        elif self.rank and self.rank > (most := full_rank(setting.graph)):
            why = f"{said}no weight of {setting.graph.name} beside which an adapter stands has a rank over {most}"
            yield Refusal("adapters", why, f"a rank of at most {most}", changed(setting.plan, Lora(rank=16)))
        elif self.rank and frozen and facts(setting.graph).trains:  # which operators have gradients was not seen
            why = f"{said}{frozen} weights of {setting.graph.name} are frozen already"
            yield Refusal("adapters", why, "a model with all its weights trained", changed(setting.plan, Lora()))
