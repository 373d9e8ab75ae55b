"""Interleaved 1F1B: each rank holds several stages from all over the model."""

from __future__ import annotations

from collections.abc import Iterator

from foretell.plan.refusal import Refusal
from foretell.plan.schedule import PassTimes, Phase, Schedule
from foretell.units import Quantity, ceil_div


class Interleaved(Schedule, frozen=True):
    name = "interleaved"
    summary = "1F1B over v stages on each rank: a bubble v times smaller, v times the sends"
    references = ("Narayanan et al. 2021, Megatron-LM, arXiv 2104.04473, section 2.2.2",)
    least_chunks = 2
    most_chunks = None

    def phases(self, rank: int, ranks: int, microbatches: int, chunks: int) -> list[Phase]:
        ahead = self._ahead(rank, ranks, chunks)
        slots = max(microbatches, 2 * ranks) * chunks
        return [(ahead, "F"), (slots - ahead, "F B"), (ahead, "B")]

    def in_flight(self, rank: int, ranks: int, microbatches: int, chunks: int) -> float:
        return min(self._ahead(rank, ranks, chunks) + 1, microbatches * chunks) / chunks

    def _ahead(self, rank: int, ranks: int, chunks: int) -> int:
        """Forwards before the first backward: a round for each chunk but the last, and the way there and back."""
        return (chunks - 1) * ranks + 2 * (ranks - 1 - rank)

    def closed_form(self, ranks: int, chunks: int, times: PassTimes) -> Quantity:
        return (ranks - 1) * (times.forward + times.backward) / chunks

    def rules(self, ranks: int, microbatches: int, chunks: int) -> Iterator[Refusal]:
        if microbatches % ranks:
            why = f"interleaved goes in rounds of {ranks} micro-batches; m{microbatches} is not a multiple of {ranks}"
            more = ceil_div(microbatches, ranks) * ranks
            fewer = f"+m{more - ranks} or " if more > ranks else ""
            yield Refusal("micro-batches in whole rounds", why, f"{fewer}+m{more}, or 1f1b")


SCHEDULE = Interleaved()
