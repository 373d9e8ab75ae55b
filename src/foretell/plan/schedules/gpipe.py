"""GPipe: all forwards, then all backwards."""

from __future__ import annotations

from foretell.plan.schedule import PassTimes, Phase, Schedule
from foretell.units import Quantity


class GPipe(Schedule, frozen=True):
    name = "gpipe"
    summary = "all forwards, then all backwards"
    references = ("Huang et al. 2019, GPipe, arXiv 1811.06965",)

    def phases(self, rank: int, ranks: int, microbatches: int, chunks: int) -> list[Phase]:
        return [(microbatches, "F"), (microbatches, "B")]

    def in_flight(self, rank: int, ranks: int, microbatches: int, chunks: int) -> float:
        return microbatches

    def closed_form(self, ranks: int, chunks: int, times: PassTimes) -> Quantity:
        return (ranks - 1) * (times.forward + times.backward)


SCHEDULE = GPipe()
