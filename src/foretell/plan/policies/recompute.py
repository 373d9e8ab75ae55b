"""Recompute: what is not kept for the backward pass and computed again when it is needed."""

from __future__ import annotations

from typing import ClassVar

from foretell.plan.policy import Policy
from foretell.plan.syntax import Number, Option, WordChoice
from foretell.units import Quantity, at_most

TOGETHER = (2, 4)
"""Blocks that run again together which the search tries: fewer inputs are kept, more of what lies between them."""


class Recompute(Policy, frozen=True, kw_only=True, tag="recompute"):
    """What is kept of the forward pass.

    attention  all but the inside of attention (scores, probabilities, their dropout)
    block      the input of each block; a block runs again as a whole before its backward pass
    every      the input of every n-th block; the n blocks from one kept input to the next run
               again together. `block` is n = 1 (segments of Chen et al. 2016)
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
        WordChoice("granularity", {"attention": "attention", "block": "block", "full": "full"}),
        Number("every", "every", least=2),
    )
    example: ClassVar[str] = "+recompute:block"

    granularity: str = "none"
    every: int = 0  # blocks that run again together; 0: not by number

    @classmethod
    def choices(cls) -> tuple[Recompute, ...]:
        words = tuple(cls(granularity=word) for word in ("none", "attention", "block", "full"))
        return (*words, *(cls(every=blocks) for blocks in TOGETHER))

    @property
    def keeps(self) -> str:
        """In words: what the backward pass finds in memory."""
        if self.every:
            return "every n-th block's input"
        return {
            "none": "all",
            "attention": "all but attention",
            "block": "each block's input",
            "full": "the stage's inputs",
        }[self.granularity]

    @property
    def again(self) -> str:
        """What runs a second time: `nothing`, `attention`, or `all`."""
        if self.every:
            return "all"
        return {"none": "nothing", "attention": "attention", "block": "all", "full": "all"}[self.granularity]

    def segment(self, blocks: Quantity) -> Quantity:
        """Of a stage of this many blocks, how many run again together (0: no block does as a whole)."""
        if self.every:
            return at_most(blocks, self.every)
        return {"none": 0, "attention": 0, "block": at_most(blocks, 1), "full": blocks}[self.granularity]
