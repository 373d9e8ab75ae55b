"""Targets: which layers have adapters, and whether embeddings are trained beside them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Final

from foretell.model.adapters import EMBEDDINGS, TARGETS, adaptable
from foretell.plan.facts import facts
from foretell.plan.policies.lora import Lora
from foretell.plan.policy import Policy
from foretell.plan.refusal import Refusal
from foretell.plan.repair import changed
from foretell.plan.syntax import Flags, Option

if TYPE_CHECKING:
    from foretell.plan.setting import Setting

WORDS: Final = (*TARGETS, EMBEDDINGS)


class Targets(Policy, frozen=True, kw_only=True, tag="adapt"):
    """Where adapters stand; all dense layers of the layers that repeat where it is not said.

    query, key, value, output   those projections of attention
    attention, feed_forward     all dense layers there
    embeddings                  besides, embedding tables and the head are trained as a whole (PEFT's
                                `modules_to_save`; the frozen copy that PEFT leaves beside them is not counted)
    """

    word: ClassVar[str] = "adapt"
    place: ClassVar[int] = 102
    searched: ClassVar[bool] = False
    summary: ClassVar[str] = "which layers have adapters, and whether embeddings are trained too"
    references: ClassVar[tuple[str, ...]] = ("Hu et al. 2021 (LoRA), arXiv 2106.09685, section 7.1",)
    syntax: ClassVar[tuple[Option, ...]] = (Flags("where", WORDS),)
    example: ClassVar[str] = "+adapt:attention"

    where: tuple[str, ...] = ()

    def refusals(self, setting: Setting) -> Iterator[Refusal]:
        if not facts(setting.graph).trains:
            return  # see `plan.forward`
        said = f"+adapt:{','.join(self.where)}"
        if self.where and not setting.plan.policy(Lora).rank:
            why = f"{said} says where adapters stand, and the plan has none (+lora16)"
            yield Refusal("adapters", why, mends=changed(setting.plan, Lora(rank=16)))
        elif self.where and not adaptable(setting.graph, tuple(word for word in self.where if word != EMBEDDINGS)):
            why = f"{said}: no dense layer of {setting.graph.name} is called so"
            yield Refusal("adapters", why, mends=changed(setting.plan, Targets()))
