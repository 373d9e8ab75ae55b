"""Base: in which form the frozen weights beside adapters are kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from foretell.model.quantized import FORMATS
from foretell.plan.facts import facts
from foretell.plan.policies.lora import Lora
from foretell.plan.policies.precision import Precision
from foretell.plan.policy import Policy
from foretell.plan.refusal import Refusal
from foretell.plan.repair import changed
from foretell.plan.syntax import Option, WordChoice

if TYPE_CHECKING:
    from foretell.plan.setting import Setting


class Base(Policy, frozen=True, kw_only=True, tag="base"):
    """The form of all weights that may have an adapter; embeddings, norms and the head stay as they are.

    `+lora16 +nf4` is QLoRA, `+fp8 +lora16 +fp8-weights` NeMo's fp8_params. The forms: `model/quantized.py`.
    """

    word: ClassVar[str] = "base"
    bare: ClassVar[bool] = True
    place: ClassVar[int] = 105
    searched: ClassVar[bool] = False
    summary: ClassVar[str] = "keep the frozen weights beside adapters in 4 bits (QLoRA) or 8"
    references: ClassVar[tuple[str, ...]] = (
        "Dettmers et al. 2023 (QLoRA), arXiv 2305.14314",
        "Frantar et al. 2022 (GPTQ), arXiv 2210.17323",
        "Lin et al. 2023 (AWQ), arXiv 2306.00978",
        "Dettmers et al. 2022 (LLM.int8()), arXiv 2208.07339",
    )
    syntax: ClassVar[tuple[Option, ...]] = (WordChoice("form", {name: name for name in FORMATS}),)
    example: ClassVar[str] = "+nf4"

    form: str = ""  # as the precision says

    def refusals(self, setting: Setting) -> Iterator[Refusal]:
        if self.form and not setting.plan.policy(Lora).rank and facts(setting.graph).trains:
            why = f"+{self.form} is the form of frozen weights, and without adapters (+lora16) all weights are trained"
            yield Refusal("adapters", why, mends=changed(setting.plan, Lora(rank=16)))
        reads = FORMATS[self.form].products if self.form else ""
        if reads and (kernels := setting.plan.policy(Precision).format.kernels) != reads:
            why = f"+{self.form} is read by products in {reads} alone, and those of this plan are in {kernels}"
            yield Refusal("adapters", why, f"+{reads}", changed(setting.plan, Precision(name=reads)))
