"""Micro-batches: the samples of a step are taken in several portions, and gradients add up over them."""

from __future__ import annotations

from typing import ClassVar

from foretell.plan.policy import Policy
from foretell.plan.syntax import Number, Option


class Microbatches(Policy, frozen=True, kw_only=True, tag="microbatches"):
    """How many micro-batches each rank takes in a step, with or without a pipeline."""

    word: ClassVar[str] = "microbatches"
    bare: ClassVar[bool] = True
    place: ClassVar[int] = 10
    inside: ClassVar[tuple[str, ...]] = ("pp",)
    summary: ClassVar[str] = "micro-batches of a step, over which gradients are accumulated"
    references: ClassVar[tuple[str, ...]] = ("Huang et al. 2019 (GPipe), arXiv 1811.06965",)
    syntax: ClassVar[tuple[Option, ...]] = (Number("m", "count"),)
    example: ClassVar[str] = "+m16"

    count: int = 1
