"""DualPipe: micro-batches enter at both ends of the pipeline, and forwards run together with backwards."""

from __future__ import annotations

from collections.abc import Iterator

from foretell.plan.refusal import Refusal
from foretell.plan.schedule import PassTimes, Phase, Schedule
from foretell.plan.schedules._rules import enough_microbatches
from foretell.plan.schedules._two_way import two_way_bubble, two_way_phases
from foretell.units import Quantity


class DualPipe(Schedule, frozen=True):
    """The model in p parts, twice: stages 0..p-1 lie on ranks 0..p-1, stages p..2p-1, which compute the

    same parts, on ranks p-1..0. The first half of the micro-batches takes the first copy, the others the
    second. So rank i holds parts i and p-1-i, and mirrored ranks sum up their gradients.
    """

    name = "dualpipe"
    summary = "two streams from both ends over two copies of the weights, forwards together with backwards"
    references = (
        "DeepSeek-AI 2024, DeepSeek-V3, arXiv 2412.19437, section 3.2.1 and Table 2",
        "github.com/deepseek-ai/DualPipe",
    )
    least_chunks = 2
    most_chunks = 2
    folded = True
    copies = 2
    splits_backward = True

    def phases(self, rank: int, ranks: int, microbatches: int, chunks: int) -> list[Phase]:
        outer = min(rank, ranks - 1 - rank)
        found = two_way_phases(outer, ranks // 2, microbatches // 2)
        return found if rank == outer else [(times, pattern.translate(_SWAPPED)) for times, pattern in found]

    def in_flight(self, rank: int, ranks: int, microbatches: int, chunks: int) -> float:
        return ranks + 1

    def closed_form(self, ranks: int, chunks: int, times: PassTimes) -> Quantity:
        return two_way_bubble(ranks, times)

    def microbatches_of(self, stage: int, ranks: int, microbatches: int, chunks: int) -> range:
        half = microbatches // 2
        return range(half) if stage < ranks else range(half, microbatches)

    def path(self, microbatch: int, ranks: int, microbatches: int, chunks: int) -> range:
        return range(ranks) if microbatch < microbatches // 2 else range(ranks, 2 * ranks)

    def rules(self, ranks: int, microbatches: int, chunks: int) -> Iterator[Refusal]:
        if ranks % 2:
            why = f"dualpipe pairs rank i with rank p-1-i, and pp{ranks} leaves one without a partner"
            yield Refusal("an even number of ranks", why, f"pp{ranks + 1}:dualpipe, or dualpipe-v")
        if microbatches % 2:
            why = f"dualpipe sends half of the micro-batches from each end, and m{microbatches} is odd"
            yield Refusal("an even number of micro-batches", why, f"+m{microbatches + 1}, or dualpipe-v")
        yield from enough_microbatches(self.name, ranks, microbatches, 2 * ranks)


_SWAPPED = str.maketrans("01", "10")
"""On the second half of the ranks the stream that comes first is that of the second copy."""

SCHEDULE = DualPipe()
