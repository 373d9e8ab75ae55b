"""Times of the thread that issues work: the device is idle before each repeat, and is not waited for within it."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

REPEAT, MOST = 2e-3, 200
"""Seconds of a repeat, and the most calls in one: fewer than the device takes into its queue."""

Call = Callable[[], object]


class Clock:
    """Writes one line for each timed call."""

    def __init__(self, out: Path, device: str, seconds: float) -> None:
        self.out, self.device, self.round = out, device, 0
        self._until = time.perf_counter() + seconds
        out.mkdir(parents=True, exist_ok=True)

    def left(self) -> float:
        return self._until - time.perf_counter()

    def ready(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def calls(self, do: Call, repeats: int = 5) -> tuple[list[float], float]:
        """Seconds of one call in each repeat; and of one call in the last of them, device awaited."""
        do()
        self.ready()
        began = time.perf_counter()
        for _ in range(2):
            do()
        inner = int(min(MOST, max(1, 2 * REPEAT / (time.perf_counter() - began))))
        found, awaited = [], 0.0
        for _ in range(repeats):
            self.ready()
            began = time.perf_counter()
            for _ in range(inner):
                do()
            found.append((time.perf_counter() - began) / inner)
            self.ready()
            awaited = (time.perf_counter() - began) / inner
        return found, awaited

    def write(self, name: str, line: dict[str, Any]) -> None:
        with (self.out / f"{name}.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")


def quantiles(samples: list[float]) -> dict[str, float]:
    """In microseconds."""
    tenths = statistics.quantiles(samples, n=10)
    return {
        name: round(seconds * 1e6, 3)
        for name, seconds in (("p10", tenths[0]), ("median", statistics.median(samples)), ("p90", tenths[-1]))
    }
