"""Pipeline parallelism: every rank takes some of the layers, and micro-batches pass through."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, ClassVar

import msgspec

from foretell.plan.facts import facts
from foretell.plan.policies.microbatches import Microbatches
from foretell.plan.refusal import Refusal
from foretell.plan.repair import changed, divisors, fewer, removed, replaced, with_fields
from foretell.plan.schedule import Schedule, find, schedules
from foretell.plan.stages import layers_per_stage
from foretell.plan.strategy import MeshAxis, Strategy
from foretell.plan.syntax import Number, Numbers, Option, WordChoice, spelled_list
from foretell.units import ceil_div

SCHEDULES = tuple(schedules())

if TYPE_CHECKING:
    from foretell.model.graph import Graph
    from foretell.plan.plan import Plan
    from foretell.plan.setting import Setting


CHUNKS = (2, 3, 4, 6, 8, 12, 16)
"""Stages of one rank that the search tries beside those that divide its layers, where a schedule leaves the choice."""


def virtual_stages(layers: int, ranks: int) -> list[int]:
    """How many stages a rank may have: all numbers that divide the layers of the fullest rank, and some others.

    With any other number a trainer that wants equal stages, but for short ends, puts more layers on a rank than it has
    to; those that cut stages of any length get the usual ones of them.
    """
    return sorted({count for count in (*CHUNKS, *divisors(ceil_div(layers, ranks))) if count * ranks <= layers})


class Pipeline(Strategy, frozen=True, kw_only=True, tag="pipeline"):
    """Some of the layers on each rank."""

    word: ClassVar[str] = "pp"
    place: ClassVar[int] = 10
    summary: ClassVar[str] = "every rank takes some of the layers"
    references: ClassVar[tuple[str, ...]] = (
        "Huang et al. 2019 (GPipe), arXiv 1811.06965",
        "Narayanan et al. 2019 (PipeDream), doi 10.1145/3341301.3359646",
        "Narayanan et al. 2021 (interleaved 1F1B), arXiv 2104.04473",
        "Qi et al. 2024 (zero bubble), arXiv 2401.10241",
        "DeepSeek-AI 2024 (DualPipe), arXiv 2412.19437",
    )
    syntax: ClassVar[tuple[Option, ...]] = (
        WordChoice("schedule", {word: word for word in SCHEDULES}),
        Number("v", "chunks"),
        Numbers("split", "split", least=0),
    )
    example: ClassVar[str] = "pp4:1f1b"

    schedule: str = "1f1b"
    chunks: int = 0  # stages of one rank; 0 where the schedule leaves no choice
    split: tuple[int, ...] = ()  # layers per stage, 0 at the ends only; empty: the trainer's rule

    def __post_init__(self) -> None:
        """One value for plans that mean the same: v is said where it is a choice, and only there."""
        schedule = schedules().get(self.schedule)
        if schedule is None:  # the plan refuses it
            return
        choice = schedule.most_chunks != schedule.least_chunks
        if choice and self.chunks == 0:
            msgspec.structs.force_setattr(self, "chunks", schedule.least_chunks)
        elif not choice and self.chunks == schedule.least_chunks:
            msgspec.structs.force_setattr(self, "chunks", 0)

    @classmethod
    def choices(cls, world: int, graph: Graph, node: int) -> Iterator[Pipeline]:
        """Every schedule that gives the gradients of one rank, with some or many stages on a rank."""
        layers = facts(graph).layers
        for schedule in schedules().values():
            if not schedule.flushes:
                continue
            if schedule.most_chunks == schedule.least_chunks:
                yield cls(ranks=world, schedule=schedule.name)
            else:
                tried = (chunks for chunks in virtual_stages(layers, world) if schedule.least_chunks <= chunks)
                yield from (cls(ranks=world, schedule=schedule.name, chunks=chunks) for chunks in tried)

    def axes(self) -> tuple[MeshAxis, ...]:
        return (MeshAxis("pp", self.ranks),)

    def refusals(self, setting: Setting) -> Iterator[Refusal]:
        if self.ranks == 1:
            yield from self._alone(setting)
            return
        schedule = find(self.schedule)
        chunks = self.chunks or schedule.least_chunks
        for refusal in schedule.refusals(self.ranks, setting.plan.microbatches, chunks):
            yield Refusal(refusal.rule, refusal.why, mends=tuple(self._scheduled(setting, schedule)))
        count, parts = facts(setting.graph).layers, schedule.parts(self.ranks, chunks)
        if 0 in self.split[1:-1]:
            ends = "only the first and the last, which have the embedding and the head, can be without layers"
            why = f"split={spelled_list(self.split)} leaves a stage with nothing; {ends}"
            mends = replaced(setting.plan, self, with_fields(self, split=()))
            yield Refusal("split of the layers", why, mends=mends)
        elif self.split and (len(self.split) != parts or sum(self.split) != count):
            said = f"split={spelled_list(self.split)} is {sum(self.split)} layers on {len(self.split)} stages"
            why = f"{said}; the plan has {parts} stages and {setting.graph.name} {count} layers"
            even = layers_per_stage("even", count, parts)
            others = [with_fields(self, split=split) for split in (even, ()) if 0 not in split]
            mends = (*replaced(setting.plan, self, *others), *removed(setting.plan, self))
            yield Refusal("split of the layers", why, mends=mends)

    def _alone(self, setting: Setting) -> Iterator[Refusal]:
        """One rank has one stage: an order of stages or layers for each would be dropped without a word."""
        count = facts(setting.graph).layers
        plain = Pipeline(ranks=1)
        if msgspec.structs.replace(self, split=() if self.split == (count,) else self.split) != plain:
            why = f"pp1 is one stage of {count} layers; there is nothing that a schedule or a split could say"
            yield Refusal("stages to schedule", why, mends=removed(setting.plan, self))

    def _scheduled(self, setting: Setting, schedule: Schedule) -> Iterator[Plan]:
        """Plans whose micro-batches and stages the schedule can take: other counts, fewer ranks, another order."""
        plan, now, batch = setting.plan, setting.plan.microbatches, setting.job.batch
        chunks = self.chunks or schedule.least_chunks
        counts = sorted(divisors(batch), key=lambda count: (abs(count - now), -count))
        passing = (m for m in counts if not any(schedule.refusals(self.ranks, m, chunks)))
        for count in islice(passing, 4):
            yield from changed(plan, Microbatches(count=count))
        least = with_fields(self, chunks=schedule.least_chunks)
        plain = with_fields(self, schedule="1f1b", chunks=0, split=self.split if len(self.split) == self.ranks else ())
        yield from replaced(plan, self, least, *fewer(with_fields(self, split=())), plain)
        yield from removed(plan, self)
