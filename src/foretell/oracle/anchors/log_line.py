"""A trainer's log: the lines that tell how long an iteration took. The last half of them counts, in the median."""

from __future__ import annotations

import re
import statistics
from pathlib import Path
from typing import Final

from foretell.oracle.anchors import DECIMAL, WHOLE, Anchor

SUMMARY = "a log with lines such as 'elapsed time per iteration (ms): 1234.5'"

PATTERNS: Final = (
    (re.compile(rf"elapsed time per iteration \(ms\):\s*({DECIMAL})"), 1e-3),  # Megatron-LM, Megatron-DeepSpeed
    (re.compile(rf"time_per_iteration_ms:\s*({DECIMAL})"), 1e-3),  # nanotron
    (re.compile(rf"train_step_timing in s[=:]\s*({DECIMAL})"), 1.0),  # NeMo
    (re.compile(rf"\b(?:step[_ ]time|time per step|iter(?:ation)?[_ ]time)[=: ]+({DECIMAL})\s*ms\b", re.I), 1e-3),
    (re.compile(rf"\b(?:step[_ ]time|time per step|iter(?:ation)?[_ ]time)[=: ]+({DECIMAL})\s*s\b", re.I), 1.0),
)
"""What a line looks like, and the seconds of its unit."""

BATCH: Final = re.compile(rf"global batch size:\s*({WHOLE})")
MEMORY: Final = re.compile(rf"max reserved:\s*({DECIMAL})")
MIB: Final = 2**20


def read(text: str, path: Path) -> Anchor | None:
    for pattern, unit in PATTERNS:
        seconds = [float(found) * unit for found in pattern.findall(text)]
        if seconds:
            settled = seconds[len(seconds) // 2 :]  # the first iterations warm up
            batches = BATCH.findall(text)
            memory = MEMORY.findall(text)
            return Anchor(
                form="log line",
                asked={"batch": int(batches[-1])} if batches else {},
                step_seconds=statistics.median(settled),
                memory_bytes=max(map(float, memory)) * MIB if memory else 0.0,
            )
    return None
