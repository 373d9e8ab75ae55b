"""The one shape of predictions and measurements: how long a step took, on what, and what it held in memory."""

from __future__ import annotations

from foretell.cost.memory import MemoryUse
from foretell.summary import Summarized

PHASES = ("input", "forward", "backward", "recompute", "bubble", "host", "optimizer", "paging", "other")
"""The closed keys of a breakdown, besides `exposed.<axis>`."""


class Observation(Summarized, frozen=True):
    """One step. The breakdown is that of the critical rank and adds up to the step."""

    step_seconds: float
    memory_bytes: float  # what the device reports, worst rank
    memory: MemoryUse
    breakdown: dict[str, float]
