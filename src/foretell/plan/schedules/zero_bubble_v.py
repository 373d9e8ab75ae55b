"""ZB-V: two stages on each rank, placed as a V, and no bubble when the three parts take equally long."""

from __future__ import annotations

from collections.abc import Iterator

from foretell.plan.refusal import Refusal
from foretell.plan.schedule import Phase, Schedule
from foretell.plan.schedules._rules import enough_microbatches


class ZeroBubbleV(Schedule, frozen=True):
    """The list is made for equal parts; what it loses when they differ is found by going through it."""

    name = "zb-v"
    summary = "two stages on each rank in a V: no bubble when F, I and W take equally long, 1F1B's memory everywhere"
    references = ("Qi et al. 2024, Zero Bubble, arXiv 2401.10241, section 6",)
    least_chunks = 2
    most_chunks = 2
    folded = True
    splits_backward = True

    def phases(self, rank: int, ranks: int, microbatches: int, chunks: int) -> list[Phase]:
        back = ranks - rank
        steady = max(microbatches, 2 * ranks - 1) - ranks
        warm_up = [(2 * back - 1, "F0"), (rank, "F1 F0"), (back, "F1 I1 W1")]
        drain = [(rank, "I0 I1"), (back, "I0 W0"), (rank, "W1"), (rank, "W0")]
        return [*warm_up, (steady, "F0 I0 W0 F1 I1 W1"), *drain]

    def in_flight(self, rank: int, ranks: int, microbatches: int, chunks: int) -> float:
        return min(2 * ranks, microbatches + 1 + rank) / 2

    def rules(self, ranks: int, microbatches: int, chunks: int) -> Iterator[Refusal]:
        return enough_microbatches(self.name, ranks, microbatches, ranks)


SCHEDULE = ZeroBubbleV()
