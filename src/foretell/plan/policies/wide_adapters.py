"""Wide adapters: LoRA's matrices in fp32 beside weights in 16 bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from foretell.model.adapters import adaptable
from foretell.plan.facts import facts
from foretell.plan.policies.lora import Lora
from foretell.plan.policy import Policy
from foretell.plan.refusal import Refusal
from foretell.plan.repair import changed
from foretell.plan.syntax import Option, WordChoice

if TYPE_CHECKING:
    from foretell.plan.setting import Setting


class WideAdapters(Policy, frozen=True, kw_only=True, tag="wide_adapters"):
    """Adapters are kept and multiplied in fp32: PEFT's `autocast_adapter_dtype`, which is on unless it is turned off.

    What a layer reads is cast for its adapter and kept so, both thin products run in fp32, and the sum is cast back.
    Weights that are in fp32 themselves, or run under autocast, change nothing.
    """

    word: ClassVar[str] = "wide_adapters"
    bare: ClassVar[bool] = True
    place: ClassVar[int] = 103
    searched: ClassVar[bool] = False
    summary: ClassVar[str] = "keep adapters in fp32 beside 16-bit weights, as PEFT does"
    references: ClassVar[tuple[str, ...]] = (
        "PEFT 0.21, src/peft/tuners/tuners_utils.py: cast_adapter_dtype makes adapters in 16 bits fp32",
        "PEFT 0.21, src/peft/tuners/lora/layer.py: inputs are cast to the adapter's type, and the result back",
    )
    syntax: ClassVar[tuple[Option, ...]] = (WordChoice("wide", {"fp32-adapters": True}),)
    example: ClassVar[str] = "+fp32-adapters"

    wide: bool = False

    def refusals(self, setting: Setting) -> Iterator[Refusal]:
        if self.wide and not setting.plan.policy(Lora).rank and facts(setting.graph).trains:
            why = "+fp32-adapters says how adapters are kept, and the plan has none (+lora16)"
            mend = Lora(rank=16) if adaptable(setting.graph) else WideAdapters()
            yield Refusal("adapters", why, mends=changed(setting.plan, mend))
