"""Recompute: what is not kept for the backward pass and computed again when it is needed."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from foretell.plan.policy import Policy
from foretell.plan.recomputation import NUMBERED, RECOMPUTATIONS, Recomputation, recomputation, recomputations
from foretell.plan.syntax import JoinedWords, Number, Option

TOGETHER = (2, 4)
"""Blocks that run again together which the search tries: fewer inputs are kept, more of what lies between them."""

NOTHING = "none"


def _joins(word: str) -> bool:
    return recomputation(word).joins


class Recompute(Policy, frozen=True, kw_only=True, tag="recompute"):
    """What is kept of the forward pass: a rule of `plan/recomputations/`, by its name, or several of modules.

    attention  all but the inside of attention (scores, probabilities, their dropout)
    operators  outputs of attention and of every other product (torchtitan's selective checkpointing)
    mlp, moe   all but the inside of these modules; also layernorm, moe_act, mla_up_proj and shared_experts, one or
               several with commas between (Megatron's recompute_modules)
    block      the input of each block; a block runs again as a whole before its backward pass
    every      the input of every n-th block; the n blocks from one kept input to the next run
               again together. `block` is n = 1 (segments of Chen et al. 2016; Megatron's method uniform)
    first      the inputs of the first n blocks of each stage, and all of the others (Megatron's method block)
    nth        the input of each n-th block, and all of the others (torchtitan's selective_ac_option)
    full       the inputs of the stage; all of the stage runs again
    """

    word: ClassVar[str] = "recompute"
    place: ClassVar[int] = 20
    summary: ClassVar[str] = "compute some of the forward pass again instead of keeping it"
    references: ClassVar[tuple[str, ...]] = (
        "Chen et al. 2016 (sublinear memory), arXiv 1604.06174",
        "Korthikanti et al. 2022 (selective recomputation), arXiv 2205.05198",
    )
    syntax: ClassVar[tuple[Option, ...]] = (
        JoinedWords("granularity", tuple(name for name in RECOMPUTATIONS if name != NOTHING), _joins),
        Number("every", "every", least=2),
        Number("first", "first"),
        Number("nth", "nth", least=2),
    )
    example: ClassVar[str] = "+recompute:block"

    granularity: str = NOTHING
    every: int = 0  # blocks that run again together; 0: not by number
    first: int = 0  # blocks of each stage that run again, from its first on
    nth: int = 0  # of so many blocks in a row the last runs again

    @classmethod
    def choices(cls) -> tuple[Recompute, ...]:
        words = tuple(cls(granularity=name) for name, rule in recomputations().items() if rule.searched)
        return (*words, *(cls(every=blocks) for blocks in TOGETHER))

    @property
    def rule(self) -> Recomputation:
        """What is saved and what runs again."""
        if self.every:
            from foretell.plan.recomputations.block import WholeLayers

            return WholeLayers(every=self.every)
        if self.numbered:
            from foretell.plan.recomputations._some import FirstLayers, NthLayers

            return FirstLayers(count=self.first) if self.first else NthLayers(step=self.nth)
        return recomputation(self.granularity)

    @property
    def spares(self) -> Recomputation | None:
        """The rule, where it leaves layers of a stage as they are."""
        return self.rule if self.rule.spares_layers else None

    @property
    def numbered(self) -> str:
        """The word that a number goes with; empty where there is none."""
        return next((word for word in NUMBERED if getattr(self, word)), "")

    @property
    def option(self) -> str:
        """How it is written after the colon, and `none` where it is not."""
        return f"{self.numbered}{getattr(self, self.numbered)}" if self.numbered else self.granularity

    @classmethod
    def of_option(cls, text: str) -> Recompute:
        """The policy that is written like this after the colon."""
        for word in NUMBERED:
            number = text.removeprefix(word)
            if number != text and number.isdecimal():
                return msgspec.structs.replace(cls(), **{word: int(number)})
        return cls(granularity=text)
