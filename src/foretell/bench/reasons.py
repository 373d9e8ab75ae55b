"""Why an engine is slow: what its own breakdown shows, one reason for each part that is worth a word."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from foretell.bench.row import BenchRow

WORTH: Final = 0.05
"""Share of a step from which a part is a reason."""

WORK: Final = ("forward", "backward", "recompute", "optimizer")
"""Phases in which a rank computes."""

PLAIN: Final = ("fp32", "tf32")
"""Precisions that leave the 16-bit matrix units idle."""

PROCESSOR: Final = "cpu"


class Reason(NamedTuple):
    """Part of a step that a better engine would not have."""

    name: str
    share: float  # of the step; 0 where it cannot be read off a breakdown
    why: str


def reasons(row: BenchRow, reference: BenchRow | None = None, alone: BenchRow | None = None) -> tuple[Reason, ...]:
    """The reasons of a row, the largest first; some can only be told beside a reference, of as many ranks and alone."""
    if not row.ok or not row.step_seconds:
        return ()
    lost = imbalance(row)
    found = [
        Reason("exposed communication", row.communication_share, _told(row, "exposed", "messages are waited for")),
        Reason("imbalance", lost, f"the fullest rank works longer than the mean: {lost:.0%} of the step"),
        Reason("bubble", _bubble(row, lost), "stages wait for micro-batches, beyond what imbalance costs"),
        Reason("recomputation", _share(row, "recompute"), "layers run forward twice"),
        Reason("host-bound", _share(row, "host"), "the device waits for the host to start its kernels"),
        Reason("input", _share(row, "input"), "ranks wait for samples"),
        *_longer(row, reference),
        *_together(row, reference, alone),
    ]
    worth = sorted((one for one in found if one.share >= WORTH), key=lambda one: -one.share)
    return (*worth, *_precision(row))


def imbalance(row: BenchRow) -> float:
    """The share of a step by which the rank that works most exceeds the mean; 0 where ranks are not told apart."""
    by_rank = [row.phases_by_rank[name] for name in WORK if name in row.phases_by_rank]
    if not by_rank:
        return 0.0
    work = [sum(parts) for parts in zip(*by_rank, strict=False)]
    return (max(work) - sum(work) / len(work)) / row.step_seconds


def _longer(row: BenchRow, reference: BenchRow | None) -> tuple[Reason, ...]:
    """What all ranks together compute longer than those of a reference do for the same samples."""
    if reference is None or reference.engine == row.engine or reference.batch != row.batch:
        return ()

    def share(*phases: str) -> float:
        return (_computed(row, phases) - _computed(reference, phases)) / (row.ranks * row.step_seconds)

    by = reference.engine
    return (
        Reason("longer passes", share("forward", "backward"), f"its passes take longer than those of {by}"),
        Reason("longer updates", share("optimizer"), f"its optimizer takes longer than that of {by}"),
    )


def _together(row: BenchRow, reference: BenchRow | None, alone: BenchRow | None) -> tuple[Reason, ...]:
    """What ranks of a reference compute longer than one alone does for as many samples, as far as these do too: no
    engine can help that."""
    if reference is None or alone is None or row.ranks == 1 or reference.batch != row.batch:
        return ()
    apart = _computed(alone, WORK) * reference.batch / alone.batch if _computed(alone, WORK) else math.inf
    beside = min(_computed(reference, WORK), _computed(row, WORK))
    share = (beside - apart) / (row.ranks * row.step_seconds)
    return (Reason("slower together", share, "ranks compute longer than one alone: they share memory and caches"),)


def _computed(row: BenchRow, phases: tuple[str, ...]) -> float:
    """Seconds of all ranks in these phases, for each step."""
    return sum(sum(row.phases_by_rank.get(name, ())) for name in phases)


def _share(row: BenchRow, phase: str) -> float:
    return row.phases.get(phase, 0.0) / row.step_seconds


def _bubble(row: BenchRow, lost: float) -> float:
    """Waiting in a pipeline that even stages would have too."""
    return max(0.0, _share(row, "bubble") - lost)


def _told(row: BenchRow, phase: str, why: str) -> str:
    axes = [name.partition(".")[2] for name, seconds in row.phases.items() if name.startswith(phase) and seconds > 0]
    return f"{why} along {' and '.join(sorted(filter(None, axes)))}" if any(axes) else why


def _precision(row: BenchRow) -> tuple[Reason, ...]:
    if row.precision not in PLAIN or row.device == PROCESSOR:
        return ()
    return (Reason("no mixed precision", 0.0, f"products in {row.precision}, so the 16-bit matrix units stand still"),)


def sentence(found: tuple[Reason, ...]) -> str:
    """The reasons in one line."""
    parts = [f"{one.name} {one.share:.0%}" if one.share else one.name for one in found]
    return ", ".join(parts) if parts else "nothing worth a word"
