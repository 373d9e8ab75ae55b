"""The kernels of the engine, as Python or compiled: step time, segments and memory of plans in tables."""

# The kernels have no types: see `timeline.segments`.
# pyright: basic

from __future__ import annotations

import sys
from typing import Any

from foretell.compiling import available, compiled, loaded, zeros
from foretell.timeline.peak_memory import PARTS, evaluate_memory, moment_bytes, rank_memory
from foretell.timeline.segments import SEGMENT, all_segments, slot_host, slot_segments
from foretell.timeline.step import evaluate, step_seconds

__all__ = [
    "PARTS",
    "SEGMENT",
    "all_segments",
    "evaluate",
    "evaluate_memory",
    "is_compiled",
    "kernels",
    "moment_bytes",
    "rank_memory",
    "slot_host",
    "slot_segments",
    "step_seconds",
    "zeros",
]


def is_compiled() -> bool:
    """Whether the kernels are compiled in this process already."""
    return loaded("foretell.timeline.engine")


def kernels(fast: bool) -> Any:
    """This module, or where there is a compiler the same with its functions compiled."""
    return compiled("foretell.timeline.engine") if fast and available() else sys.modules[__name__]
