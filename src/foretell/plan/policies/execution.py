"""Execution: how the host starts kernels."""

from __future__ import annotations

from typing import ClassVar

from foretell.plan.policy import Policy
from foretell.plan.syntax import Option, WordChoice


class Execution(Policy, frozen=True, kw_only=True, tag="execution"):
    """How kernels are started. What is usual is the trainer's.

    eager     one by one, as operators are met
    compiled  element-wise neighbours are fused into one kernel first
    graphed   each pass of each layer is recorded and started at once
    captured  a whole step is recorded and started at once
    """

    word: ClassVar[str] = "execution"
    bare: ClassVar[bool] = True
    place: ClassVar[int] = 80
    summary: ClassVar[str] = "kernels one by one, fused, or recorded and started at once; else as the trainer does"
    references: ClassVar[tuple[str, ...]] = (
        "Paszke et al. 2019 (PyTorch), arXiv 1912.01703",
        "Ansel et al. 2024 (PyTorch 2), doi 10.1145/3620665.3640366",
    )
    syntax: ClassVar[tuple[Option, ...]] = (
        WordChoice("mode", {"eager": "eager", "compiled": "compiled", "graphed": "graphed", "captured": "captured"}),
    )
    example: ClassVar[str] = "+compiled"

    mode: str = "trainer"

    def of_kernels(self, usual: str) -> str:
        """How kernels run: as the trainer's usually do, where nothing is said, or only how each layer is started."""
        return usual if self.mode in ("trainer", "graphed") else self.mode
