"""Pipeline parallelism: every rank takes some of the layers, and micro-batches pass through."""

from __future__ import annotations

from typing import ClassVar

from foretell.plan.schedule import schedules
from foretell.plan.strategy import MeshAxis, Strategy
from foretell.plan.syntax import Choice, Number, Numbers, Option

SCHEDULES = tuple(schedules())


class Pipeline(Strategy, frozen=True, kw_only=True, tag="pipeline"):
    """Some of the layers on each rank."""

    word: ClassVar[str] = "pp"
    summary: ClassVar[str] = "every rank takes some of the layers"
    references: ClassVar[tuple[str, ...]] = (
        "Huang et al. 2019 (GPipe), arXiv 1811.06965",
        "Narayanan et al. 2019 (PipeDream), doi 10.1145/3341301.3359646",
        "Narayanan et al. 2021 (interleaved 1F1B), arXiv 2104.04473",
        "Qi et al. 2024 (zero bubble), arXiv 2401.10241",
        "DeepSeek-AI 2024 (DualPipe), arXiv 2412.19437",
    )
    syntax: ClassVar[tuple[Option, ...]] = (
        Choice("schedule", {word: word for word in SCHEDULES}),
        Number("v", "chunks"),
        Numbers("split", "split"),
    )
    example: ClassVar[str] = "pp4:1f1b"

    schedule: str = "1f1b"
    chunks: int = 0  # stages of one rank; 0: as few as the schedule can do with
    split: tuple[int, ...] = ()  # layers per stage; empty: the trainer's rule

    def axes(self) -> tuple[MeshAxis, ...]:
        return (MeshAxis("pp", self.ranks),)
