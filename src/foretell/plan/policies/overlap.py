"""Overlap: whether communication runs beside computation where nothing forbids it."""

from __future__ import annotations

from typing import ClassVar

from foretell.plan.policy import Policy
from foretell.plan.syntax import Option, WordChoice


class Overlap(Policy, frozen=True, kw_only=True, tag="overlap"):
    """Whether communication may hide behind computation. What is usual is the trainer's."""

    word: ClassVar[str] = "overlap"
    bare: ClassVar[bool] = True
    place: ClassVar[int] = 60
    summary: ClassVar[str] = "whether communication runs beside computation; else as the trainer does"
    references: ClassVar[tuple[str, ...]] = ("Li et al. 2020 (PyTorch DDP), arXiv 2006.15704",)
    syntax: ClassVar[tuple[Option, ...]] = (WordChoice("when", {"overlap": "always", "no-overlap": "never"}),)
    example: ClassVar[str] = "+no-overlap"

    when: str = "trainer"
