"""A call timed by device events, and the lines it is written to: what all groups of this study share."""

from __future__ import annotations

import gc
import hashlib
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

SEED = 29
FLUSH_BYTES = 2**28
"""Written between two calls, so that no operand waits in the cache (60 MB here): weights never do in a step."""
Call = Callable[[], Any]


def set_aside(identity: str) -> bool:
    """Whether a case belongs to the half that no constant is chosen on: drawn from its name, before it is measured."""
    return hashlib.sha256(f"{SEED} {identity}".encode()).digest()[0] % 2 == 1


class Device:
    """The device that calls run on: `cuda`, or `cpu` to try the script out, where times mean nothing."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.tiny = kind == "cpu"
        self._flushed = None if self.tiny else torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=kind)

    def wait(self) -> None:
        if not self.tiny:
            torch.cuda.synchronize()

    def free(self) -> None:
        gc.collect()
        if not self.tiny:
            torch.cuda.empty_cache()

    def rand(self, *shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.randn(shape, device=self.kind, dtype=dtype)

    def samples(self, call: Call, repeats: int = 7) -> list[float]:
        """Milliseconds of each repeated call; the host runs ahead, so that no gap between its kernels is the host's."""
        call()
        self.wait()
        began = time.perf_counter()
        call()
        issued = time.perf_counter() - began
        self.wait()
        one = time.perf_counter() - began
        if self.tiny:
            return [one * 1e3]
        repeats = repeats if one < 0.03 else 3
        events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeats)]
        if one < 0.03:  # a longer call hides the host's work by itself
            torch.cuda._sleep(int(min(issued * repeats * 1.3 + 2e-4, 0.05) * 1.98e9))
        for start, end in events:
            if one < 0.01:
                self._flushed.zero_()
            start.record()
            call()
            end.record()
        self.wait()
        return [start.elapsed_time(end) for start, end in events]


class Lines:
    """Lines of one file, flushed one by one, until the time is spent."""

    def __init__(self, path: Path, seconds: float) -> None:
        self.began = time.perf_counter()
        self.seconds = seconds
        self.count = self.failed = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w")

    def spent(self) -> float:
        return time.perf_counter() - self.began

    def write(self, told: dict[str, Any]) -> None:
        self.count += 1
        self._file.write(json.dumps(told) + "\n")
        self._file.flush()

    def case(self, told: dict[str, Any], device: Device, make: Callable[[], Call]) -> bool:
        """Times what `make` returns and writes it, or why it failed; whether it went well."""
        try:
            call = make()
            samples = device.samples(call)
        except Exception as problem:
            self.failed += 1
            self.write({**told, "failed": f"{type(problem).__name__}: {problem}"[:300]})
            return False
        self.write({**told, **spread(samples)})
        return True


def spread(samples: list[float]) -> dict[str, Any]:
    """The median of some milliseconds, the tenth and the ninetieth percentile, and all of them."""
    ordered = sorted(samples)
    last = len(ordered) - 1
    return {
        "ms": round(statistics.median(ordered), 5),
        "p10": round(ordered[round(0.1 * last)], 5),
        "p90": round(ordered[round(0.9 * last)], 5),
        "samples": [round(sample, 5) for sample in samples],
    }
