"""Prompt: rows before the tokens, or before the keys and values of each attention, are trained, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from foretell.model.prompts import takes_prefix, takes_prompt
from foretell.plan.facts import facts
from foretell.plan.policies.lora import Lora
from foretell.plan.policies.recompute import Recompute
from foretell.plan.policies.train import Train
from foretell.plan.policy import Policy
from foretell.plan.refusal import Refusal
from foretell.plan.repair import changed
from foretell.plan.syntax import Number, Option

if TYPE_CHECKING:
    from foretell.plan.setting import Setting

CUT: tuple[str, ...] = ("cp", "spatial", "filter", "channel")
"""Axes that cut rows, or weights by their columns."""


class Prompt(Policy, frozen=True, kw_only=True, tag="prompt"):
    """promptN   the first N tokens of each row are rows of numbers that are trained; they count among `--seq`
    prefixN   each attention looks back on N keys and values that are trained; `--seq` counts the tokens alone
    """

    word: ClassVar[str] = "prompt"
    bare: ClassVar[bool] = True
    place: ClassVar[int] = 106
    searched: ClassVar[bool] = False
    summary: ClassVar[str] = "train a prompt of N tokens, or a prefix of each attention, beside frozen weights"
    references: ClassVar[tuple[str, ...]] = (
        "Lester et al. 2021 (prompt tuning), arXiv 2104.08691",
        "Li, Liang 2021 (prefix tuning), arXiv 2101.00190",
        "PEFT 0.21.2, src/peft/peft_model.py: what runs",
    )
    syntax: ClassVar[tuple[Option, ...]] = (Number("prompt", "tokens"), Number("prefix", "prefix"))
    example: ClassVar[str] = "+prompt20"

    tokens: int = 0
    prefix: int = 0

    def refusals(self, setting: Setting) -> Iterator[Refusal]:
        graph, plan = setting.graph, setting.plan
        if not (self.tokens or self.prefix) or not facts(graph).trains:
            return
        said = f"+prompt{self.tokens}" if self.tokens else f"+prefix{self.prefix}"
        without = changed(plan, Prompt())
        cut = [axis.word for axis in plan.axes if axis.word in CUT and axis.world > 1]
        if self.tokens and self.prefix:
            why = (
                f"+prompt{self.tokens} and prefix{self.prefix} are two ways to tune, of which PEFT takes one at a time"
            )
            yield Refusal("prompts", why, mends=changed(plan, Prompt(tokens=self.tokens)))
        elif plan.policy(Lora).rank or plan.policy(Train) != Train():
            yield Refusal("prompts", f"{said} freezes all weights, and the plan trains others", mends=without)
        elif cut:
            yield Refusal("prompts", f"{said} lies before whole rows, and {cut[0]} cuts them", mends=without)
        elif self.prefix and plan.policy(Recompute) != Recompute():
            why = f"{said} is a cache of keys and values, which PEFT refuses beside checkpointing (peft_model.py)"
            yield Refusal("prompts", why, mends=changed(plan, Recompute()))
        elif self.prefix and not takes_prefix(graph):
            why = f"{said}: not every layer of {graph.name} is causal attention by a flash kernel (16 bits)"
            yield Refusal("prompts", why, mends=without)
        elif self.tokens >= facts(graph).sequence or not takes_prompt(graph):
            why = f"{said}: rows of {graph.name} have {facts(graph).sequence} tokens in all"
            yield Refusal("prompts", why, mends=without)
