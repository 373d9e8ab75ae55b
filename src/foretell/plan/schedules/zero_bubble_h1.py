"""ZB-H1 (also ZB1P): weight gradients wait and fill the end of the step, with the memory of 1F1B."""

from __future__ import annotations

from collections.abc import Iterator

from foretell.plan.refusal import Refusal
from foretell.plan.schedule import PassTimes, Phase, Schedule
from foretell.plan.schedules._rules import enough_microbatches
from foretell.units import Quantity, at_least


class ZeroBubbleH1(Schedule, frozen=True):
    name = "zb-h1"
    summary = "1F1B with weight gradients put off to the drain: a third of its bubble, its memory at rank 0"
    references = ("Qi et al. 2024, Zero Bubble, arXiv 2401.10241, section 2.1 and Table 2",)
    splits_backward = True

    def phases(self, rank: int, ranks: int, microbatches: int, chunks: int) -> list[Phase]:
        ahead = ranks - 1 - rank
        steady = microbatches - ranks + 1
        return [(ahead, "F"), (rank, "F I"), (steady, "F I W"), (ahead, "I W"), (rank, "W")]

    def in_flight(self, rank: int, ranks: int, microbatches: int, chunks: int) -> float:
        return ranks

    def closed_form(self, ranks: int, chunks: int, times: PassTimes) -> Quantity:
        # The paper's Table 2 has forward + input - weight, for weight gradients no longer than a
        # forward; longer ones hold up the drain by as much as they are longer.
        slower = at_least(times.forward, times.weight_gradient)
        return (ranks - 1) * (slower + times.input_gradient - times.weight_gradient)

    def rules(self, ranks: int, microbatches: int, chunks: int) -> Iterator[Refusal]:
        return enough_microbatches(self.name, ranks, microbatches, ranks)


SCHEDULE = ZeroBubbleH1()
