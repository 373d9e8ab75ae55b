"""Train: which weights alone are trained; the others are frozen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from foretell.model.layers import layers
from foretell.model.partly import PLACES, ROLES, partly_trained
from foretell.model.totals import totals
from foretell.plan.facts import facts
from foretell.plan.policies.lora import Lora
from foretell.plan.policy import Policy
from foretell.plan.refusal import Refusal
from foretell.plan.repair import changed
from foretell.plan.syntax import Flags, Number, Option

if TYPE_CHECKING:
    from foretell.plan.setting import Setting


class Train(Policy, frozen=True, kw_only=True, tag="train"):
    """Parts that are trained while everything else is frozen; all of the model where nothing is said.

    lastN                          the last N layers (LLaMA-Factory's freeze_trainable_layers)
    attention, feed_forward        these dense layers of all layers
    embeddings, head               tables, and what makes logits
    norms, biases                  the weights of norms; what is added to products (BitFit)
    vision, projector, language    towers of a model of several senses: `+train:projector` is LLaVA's first stage
    """

    word: ClassVar[str] = "train"
    place: ClassVar[int] = 99
    searched: ClassVar[bool] = False
    summary: ClassVar[str] = "train the last layers, or parts by name, and freeze all others"
    references: ClassVar[tuple[str, ...]] = (
        "Howard, Ruder 2018 (ULMFiT: layers unfrozen from the last on), arXiv 1801.06146",
        "Ben Zaken et al. 2021 (BitFit), arXiv 2106.10199",
        "Liu et al. 2023 (LLaVA), arXiv 2304.08485, section 4.2",
    )
    syntax: ClassVar[tuple[Option, ...]] = (Number("last", "last"), Flags("parts", (*PLACES, *ROLES)))
    example: ClassVar[str] = "+train:last2"

    last: int = 0
    parts: tuple[str, ...] = ()

    def refusals(self, setting: Setting) -> Iterator[Refusal]:
        graph, plan = setting.graph, setting.plan
        if not (self.last or self.parts) or not facts(graph).trains:
            return
        said = "+train:" + ",".join((*([f"last{self.last}"] if self.last else []), *self.parts))
        all_trained = changed(plan, Train())
        if plan.policy(Lora).rank:
            why = f"{said} says which weights are trained, and beside +lora{plan.policy(Lora).rank} none is"
            yield Refusal("partly trained", why, "+adapt: where adapters stand", all_trained)
        elif self.last > len(layers(graph)):
            why = f"{said}: {graph.name} has {len(layers(graph))} layers"
            yield Refusal("partly trained", why, mends=all_trained)
        elif not totals(partly_trained(graph, self.parts, self.last)).trainable:
            yield Refusal("partly trained", f"{said}: nothing of {graph.name} is called so", mends=all_trained)
