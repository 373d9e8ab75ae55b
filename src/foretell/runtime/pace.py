# pyright: basic
"""A rank that computes more slowly than its machine: the straggler that a study needs."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from foretell.runtime.clock import HostMarks
from foretell.runtime.counting import NAMESPACES

NAP = 5e-4
"""Seconds of debt that are slept off at once: shorter sleeps are never as short as they should be."""


class Slowed(TorchDispatchMode):
    """Every operator takes so many times as long as it has a core. Messages do not: their threads are the network's.

    It counts what this thread computed, not what the wall's clock showed: a busy machine does not make it slower yet.
    """

    def __init__(self, factor: float) -> None:
        super().__init__()
        self._factor, self._debt = factor, 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        start = time.thread_time()
        result = func(*args, **(kwargs or {}))
        if func.namespace not in NAMESPACES:
            self._owe((self._factor - 1) * (time.thread_time() - start))
        return result

    def _owe(self, seconds: float) -> None:
        self._debt += seconds
        if self._debt > NAP:
            start = time.perf_counter()
            time.sleep(self._debt)
            seconds = time.perf_counter() - start
            self._debt -= seconds
            HostMarks.slept += seconds


def slowed(factor: float) -> AbstractContextManager[Any]:
    """While this holds, this thread computes so many times more slowly."""
    return Slowed(factor) if factor > 1 else nullcontext()
