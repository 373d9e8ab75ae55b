"""What DualPipe and its halved form share: eight phases in which two streams meet.

DualPipe has a stream from each end of the pipeline. Folded in the middle, each pair of ranks that
mirror each other is one rank with two chunks, and the two streams are the way down and up of a V.
The phases are those of the authors' code (deepseek-ai/DualPipe), written for the folded form.
"""

from __future__ import annotations

from foretell.plan.schedule import PassTimes, Phase
from foretell.units import Quantity


def two_way_phases(rank: int, ranks: int, microbatches: int) -> list[Phase]:
    """The phases of a rank of the folded form; chunk 0 is the stream that reaches it first."""
    inner = ranks - 1 - rank
    half, odd = divmod(rank + 1, 2)
    meeting = (1, "F0&B1 F1&B0") if inner else (1, "F0 B1 F1&B0")  # apart at the turning point: a smaller bubble
    warm_up = [(2 * inner, "F0"), (rank + 1, "F0 F1"), (inner, "I1 W F1")]
    steady = [meeting, (microbatches - 2 * ranks + rank, "F0&B1 F1&B0"), (inner, "B1 F1&B0")]
    drain = [(half, "B1 B0"), (odd, "B1 I0"), (half, "I1 I0"), (inner, "W I0"), (rank + 1, "W")]
    return [*warm_up, *steady, *drain]


def two_way_bubble(parts: int, times: PassTimes) -> Quantity:
    """DeepSeek-V3, Table 2, with the times of one of the model's parts; exact when F, I and W are equal."""
    return (parts / 2 - 1) * (times.together + times.backward - 3 * times.weight_gradient)
