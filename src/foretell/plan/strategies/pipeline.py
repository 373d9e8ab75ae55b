"""Pipeline parallelism: every rank takes some of the layers, and micro-batches pass through."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from foretell.plan.facts import facts
from foretell.plan.refusal import Refusal
from foretell.plan.schedule import find, schedules
from foretell.plan.stages import layers_per_stage
from foretell.plan.strategy import MeshAxis, Strategy
from foretell.plan.syntax import Choice, Number, Numbers, Option

SCHEDULES = tuple(schedules())

if TYPE_CHECKING:
    from foretell.plan.setting import Setting


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

    def refusals(self, setting: Setting) -> Iterator[Refusal]:
        schedule = find(self.schedule)
        chunks = self.chunks or schedule.least_chunks
        yield from schedule.refusals(self.ranks, setting.plan.microbatches, chunks)
        count, parts = facts(setting.graph).layers, schedule.parts(self.ranks, chunks)
        if self.split and (len(self.split) != parts or sum(self.split) != count):
            even = "/".join(str(size) for size in layers_per_stage("even", count, parts))
            said = f"split={'/'.join(map(str, self.split))} is {sum(self.split)} layers on {len(self.split)} stages"
            why = f"{said}; the plan has {parts} stages and {setting.graph.name} {count} layers"
            yield Refusal("split of the layers", why, f"split={even}")
        elif parts > count and not setting.trainer.legal.empty_stages:
            why = f"{parts} stages for {count} layers"
            yield Refusal("a layer each", why, f"pp{max(1, count // chunks)}, or fewer")
