"""Variants of LoRA: what is trained besides the two matrices, and by what their product is scaled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Final

from foretell.model.adapters import adaptable
from foretell.plan.facts import facts
from foretell.plan.policies.lora import Lora
from foretell.plan.policy import Policy
from foretell.plan.refusal import Refusal
from foretell.plan.repair import changed
from foretell.plan.syntax import Flags, Option

if TYPE_CHECKING:
    from foretell.plan.setting import Setting

CUT: Final = ("tp", "filter", "channel")
"""Axes that cut a weight, whose columns then have a length on no rank."""


class Variant(Policy, frozen=True, kw_only=True, tag="variant"):
    """dora     each column of the merged weight has a trained magnitude; its length is found anew in each forward pass
    rslora   the product is scaled by alpha over the root of the rank, not over the rank: a number, and no cost
    """

    word: ClassVar[str] = "variant"
    bare: ClassVar[bool] = True
    place: ClassVar[int] = 104
    searched: ClassVar[bool] = False
    summary: ClassVar[str] = "train DoRA's magnitudes beside adapters, or scale them as rsLoRA does"
    references: ClassVar[tuple[str, ...]] = (
        "Liu et al. 2024 (DoRA), arXiv 2402.09353",
        "PEFT 0.21.2, src/peft/tuners/lora/dora.py: what runs",
        "Kalajdzievski 2023 (rsLoRA), arXiv 2312.03732",
    )
    syntax: ClassVar[tuple[Option, ...]] = (Flags("how", ("dora", "rslora")),)
    example: ClassVar[str] = "+dora"

    how: tuple[str, ...] = ()

    def refusals(self, setting: Setting) -> Iterator[Refusal]:
        graph, plan = setting.graph, setting.plan
        if not self.how or not facts(graph).trains:
            return
        said = f"+{','.join(self.how)}"
        left = Variant(how=tuple(word for word in self.how if word != "dora"))
        if not plan.policy(Lora).rank:
            mend = Lora(rank=16) if adaptable(graph) else Variant()
            why = f"{said} says which adapters, and the plan has none (+lora16)"
            yield Refusal("adapters", why, mends=changed(plan, mend))
        elif "dora" in self.how:
            cut = [axis.word for axis in plan.axes if axis.word in CUT and axis.world > 1]
            if cut:
                why = f"{said} takes lengths of whole columns, and {cut[0]} cuts weights"
                yield Refusal("adapters", why, mends=changed(plan, left))
            if any(graph.blocks[at].nodes[index].kind == "grouped_matmul" for at, index in adaptable(graph)):
                why = f"{said}: PEFT has it beside no experts (lora/layer.py, ParamWrapper), which {graph.name} has"
                yield Refusal("adapters", why, mends=changed(plan, left))
