"""1F1B: as soon as a rank can go backward, one forward and one backward in turn."""

from __future__ import annotations

from foretell.plan.schedule import PassTimes, Phase, Schedule
from foretell.units import Quantity


class OneForwardOneBackward(Schedule, frozen=True):
    name = "1f1b"
    summary = "one forward, one backward in turn: GPipe's bubble, fewer activations"
    references = (
        "Narayanan et al. 2021, PipeDream-Flush, arXiv 2006.09503",
        "Narayanan et al. 2021, Megatron-LM, arXiv 2104.04473, section 2.2.1",
    )

    def phases(self, rank: int, ranks: int, microbatches: int, chunks: int) -> list[Phase]:
        ahead = ranks - 1 - rank
        return [(ahead, "F"), (max(microbatches, ranks) - ahead, "F B"), (ahead, "B")]

    def in_flight(self, rank: int, ranks: int, microbatches: int, chunks: int) -> float:
        return min(ranks - rank, microbatches)

    def closed_form(self, ranks: int, chunks: int, times: PassTimes) -> Quantity:
        return (ranks - 1) * (times.forward + times.backward)


SCHEDULE = OneForwardOneBackward()
