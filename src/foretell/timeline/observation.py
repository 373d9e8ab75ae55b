"""The one shape of predictions and measurements: how long a step took, on what, and what it held in memory."""

from __future__ import annotations

import msgspec

PHASES = ("input", "forward", "backward", "recompute", "bubble", "host", "optimizer", "other")
"""The closed keys of a breakdown, besides `exposed.<axis>`."""


class MemoryUse(msgspec.Struct, frozen=True):
    """Bytes of the worst rank, as tensors take them, as the allocator reserves them, as the device reports them."""

    allocated: float
    reserved: float
    device: float
    by_stage: tuple[float, ...]  # device bytes of each pipeline rank
    by_kind: dict[str, float]  # of the worst rank at its peak, adding up to `device`
    peak_moment: str


class Observation(msgspec.Struct, frozen=True):
    """One step. The breakdown is that of the critical rank and adds up to the step."""

    step_seconds: float
    memory_bytes: float  # what the device reports, worst rank
    memory: MemoryUse
    breakdown: dict[str, float]
