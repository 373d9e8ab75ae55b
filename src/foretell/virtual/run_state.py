"""Where a run in virtual time stands, what took time in it, and when it is over."""

from __future__ import annotations

import math
from typing import NamedTuple


class RunState(NamedTuple):
    """Where a run stands."""

    samples: int
    updates: int
    seconds: float
    loss: float
    metric: float


class TraceSpan(NamedTuple):
    """Something that took time, for the trace."""

    node: int
    what: str
    start: float
    seconds: float


class RunLimits(NamedTuple):
    """When a run is over."""

    gradients: float = math.inf  # taken in
    seconds: float = math.inf
    loss: float = -math.inf  # the target
    events: float = math.inf


NO_LIMITS = RunLimits()
