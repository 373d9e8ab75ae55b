"""The memory of a step as a profiler shows it: largest tensors, each pipeline rank, and the fullest one over time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final

from foretell.cli.parts import parts_table
from foretell.cli.table import WIDTH, fit, table
from foretell.units import show_bytes

if TYPE_CHECKING:
    from foretell.oracle.predict import Prediction
    from foretell.timeline.memory_timeline import MemoryMoment, MemoryTimeline
    from foretell.timeline.peak_breakdown import AliveTensors

MOMENTS: Final = 12
"""Lines of a step at most, beside its fullest moment."""


def tensors_table(held: Sequence[AliveTensors]) -> str:
    """What is alive at the fullest moment, equal tensors of several layers and micro-batches together."""
    rows: list[list[str]] = []
    for one in held:
        each = f"{one.count:,} x {show_bytes(one.bytes / one.count)}" if one.count > 1 and one.kind != "others" else ""
        rows.append([fit(one.name, WIDTH - 30), each, show_bytes(one.bytes)])
    return table(["largest tensors at the peak", "", "bytes"], rows)


def stages_table(found: Prediction) -> list[str]:
    """What the device of each pipeline rank reports at its own fullest moment, ranks that hold the same together."""
    sizes = found.memory.by_stage
    if len(sizes) < 2:
        return []
    parts: list[tuple[str, float]] = []
    for size, ranks in groupby(range(len(sizes)), key=lambda at: sizes[at]):
        own = [*ranks]
        parts.append((f"rank {own[0]}" if len(own) == 1 else f"ranks {own[0]} to {own[-1]}", size))
    return [parts_table("memory by pipeline rank", parts, found.usable, show_bytes, "of usable")]


def moments_table(timeline: MemoryTimeline) -> str:
    """The fullest rank over a step, in bytes of tensors: moments evenly chosen, its fullest among them."""
    moments = timeline.moments
    most = max(range(len(moments)), key=lambda at: moments[at].allocated)
    last = len(moments) - 1
    chosen = {round(at * last / (MOMENTS - 1)) for at in range(MOMENTS)} if last >= MOMENTS else set(range(last + 1))
    rows = [(_moment(moments[at]), moments[at].allocated) for at in sorted(chosen | {most})]
    where = f", rank {timeline.rank}" if timeline.ranks > 1 else ""
    return parts_table(f"tensors over the step{where}", rows, moments[most].allocated, show_bytes, "of most")


def _moment(one: MemoryMoment) -> str:
    """F12, 3 in flight."""
    kept = sum(one.in_flight.values())
    return f"{one.name}, {kept} in flight" if one.slot and kept else one.name
