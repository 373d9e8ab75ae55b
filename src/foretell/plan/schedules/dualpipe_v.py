"""DualPipeV: DualPipe folded in the middle, so that one copy of the weights is enough."""

from __future__ import annotations

from collections.abc import Iterator

from foretell.plan.refusal import Refusal
from foretell.plan.schedule import PassTimes, Phase, Schedule
from foretell.plan.schedules._rules import enough_microbatches
from foretell.plan.schedules._two_way import two_way_bubble, two_way_phases
from foretell.units import Quantity


class DualPipeV(Schedule, frozen=True):
    name = "dualpipe-v"
    summary = "DualPipe folded to a V over half the ranks, with one copy of the weights"
    references = (
        "github.com/deepseek-ai/DualPipe, DualPipeV",
        "Sea AI Lab 2025, DualPipe could be better without the Dual (the cut in half)",
    )
    least_chunks = 2
    most_chunks = 2
    folded = True
    splits_backward = True

    def phases(self, rank: int, ranks: int, microbatches: int, chunks: int) -> list[Phase]:
        return two_way_phases(rank, ranks, microbatches)

    def in_flight(self, rank: int, ranks: int, microbatches: int, chunks: int) -> float:
        return (2 * ranks + 1) / 2

    def closed_form(self, ranks: int, chunks: int, times: PassTimes) -> Quantity:
        return two_way_bubble(2 * ranks, times) / 2

    def rules(self, ranks: int, microbatches: int, chunks: int) -> Iterator[Refusal]:
        return enough_microbatches(self.name, ranks, microbatches, 2 * ranks)


SCHEDULE = DualPipeV()
