# pyright: basic
"""How long a call takes on this device, several times over."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch

SHORTEST: Final = 50e-6
"""Seconds below which a clock's own time counts: such calls are timed several at once."""

FEWEST, MOST = 3, 20
"""Times that a call is timed; on a processor each way."""

PUSHED: Final = 2**23
"""Bytes that push a call's operands out of a core's own caches. Three dense networks on one core took 1.04 to 1.7 times
what calls on the same operands again and again add up to, and 0.64 to 1.09 times what they do with none in a cache."""

TOGETHER: Final = 10
LONG: Final = 500e-6
"""Calls between two events of a device, so many or as many as take this long: events are good to half a microsecond."""


class DeviceClock:
    """Times calls on one device, each for about as long as it is given."""

    def __init__(self, device: str, seconds: float, fewest: int = FEWEST) -> None:
        self.device, self.seconds, self.fewest = device, seconds, fewest
        self._other = torch.ones(PUSHED // 4)
        self.pushing = _once(self.push, 3)

    def times(self, call: Callable[[], Any]) -> Sequence[float]:
        """Seconds of single calls, warm."""
        with _undisturbed():
            return self._cuda(call) if self.device == "cuda" else self._cpu(call)

    def _cpu(self, call: Callable[[], Any]) -> Sequence[float]:
        """In turn with operands in the nearest caches and after other data went through them: a step has both."""
        call()
        first = _once(call, 1)
        together = max(1, round(SHORTEST / max(first, 1e-9)))
        once = _once(call, together) if together > 1 else first
        count = min(MOST, max(self.fewest, int(self.seconds / (once * (together + 1) + self.pushing))))
        found: list[float] = []
        for _ in range(count):
            found.append(_once(call, together))
            self.push()
            found.append(_once(call, 1))
        return found

    def push(self) -> None:
        """Let other data go through the caches."""
        self._other.add_(1.0)

    def _cuda(self, call: Callable[[], Any]) -> Sequence[float]:
        """The device's own time: a sleep ahead of the calls lets the host queue them all before the first one runs."""
        call()
        call()
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        host = time.perf_counter() - start
        torch.cuda.synchronize()
        once = self._queued(call, 1, host)
        together = min(TOGETHER, max(1, round(LONG / max(once, 1e-9))))
        count = min(MOST, max(self.fewest, int(self.seconds / max(once * together, host * together))))
        return [self._queued(call, together, host) for _ in range(count)]

    def _queued(self, call: Callable[[], Any], times: int, host: float) -> float:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(int(CYCLES * (2 * times * host + SETTLE)))
        start.record()
        for _ in range(times):
            call()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / 1e3 / times

    def wall(self, call: Callable[[], Any], count: int) -> Sequence[float]:
        """Seconds as the host sees them, the device's work included."""
        with _undisturbed():
            call()
            self.settle()
            found: list[float] = []
            now = time.perf_counter if self.device == "cuda" else time.thread_time
            for _ in range(count):
                start = now()
                call()
                self.settle()
                found.append(now() - start)
            return found

    def settle(self) -> None:
        """Wait until the device has nothing left to do."""
        if self.device == "cuda":
            torch.cuda.synchronize()


CYCLES: Final = 2e9
"""Cycles of a device in a second, about: how long the sleep ahead of queued calls is."""

SETTLE: Final = 50e-6
"""Seconds of that sleep besides."""


def _once(call: Callable[[], Any], times: int) -> float:
    """Seconds of this thread: what other programs take of a shared processor is no part of them."""
    start = time.thread_time()
    for _ in range(times):
        call()
    return (time.thread_time() - start) / times


@contextmanager
def _undisturbed() -> Generator[None]:
    """No garbage is collected while a clock runs."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
