# pyright: basic
"""Kernels among others, as a training step has them, for as long as the device needs to reach its limit of power.

A kernel that is timed alone runs for milliseconds, at clocks that no step keeps: on one H200 a product of 8,192 reaches
770 to 800 Tflop/s in a few calls, and 666 when it goes on (studies/h200_power). The kernels are those of other probes,
so each is there both ways, and the ratio of the two is what the limit costs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

import msgspec
import torch

from foretell.calibration.case import Case, Scope, allow_tf32
from foretell.calibration.probes import attention, matmul, memory_bound, normalisation
from foretell.cost.samples import FigureSample, Kernel
from foretell.hardware import this_machine

SUMMARY = "kernels under the limit of power"

SECONDS: Final = 3.0
"""That a mix goes on for; the last third is timed."""

AHEAD: Final = 2
"""Rounds of a mix that the host is ahead of the device."""

PRODUCT: Final = {"in": 4096}
ATTENTION: Final = {"query": 8192}
ELEMENTS: Final = {"item": 2**28}
NORM: Final = {"group": 16384, "member": 4096}
"""What of the other probes is mixed: a layer of an 8B model and what moves memory. Products take half of a round."""

CLOCK: Final = "clock under power"


def cases(scope: Scope) -> Iterator[Case]:
    """None on a processor, and none in a hurry: the kernels are then too small to draw much."""
    if scope.device != "cuda" or scope.quick:
        return
    known: list[Kernel] = []
    for precision in scope.precisions:
        for at, one in enumerate(mixed(scope, precision)):
            about = msgspec.structs.replace(_kernel(one), sustained=True)
            if about not in known:  # what is in fp32 is in the mixes of tf32 and fp32
                known.append(about)
                yield Case(about, lambda _, p=precision, n=at: _timed(scope, p)[n])
        yield Case(FigureSample(name=f"{CLOCK} {precision}", unit="Hz"), lambda _, p=precision: _timed(scope, p)[-1])


def mixed(scope: Scope, precision: str) -> list[Case]:
    """The cases of other probes that a mix is made of: of tf32 and fp32, what both have is in the same precision."""
    plain = "fp32" if precision == "tf32" else precision
    chosen = ((matmul, precision, PRODUCT), (attention, plain, ATTENTION))
    chosen += ((memory_bound, plain, ELEMENTS), (normalisation, plain, NORM))
    found: list[Case] = []
    for probe, word, sizes in chosen:
        for case in probe.cases(scope):
            about = case.about
            if isinstance(about, Kernel) and about.precision == word and sizes.items() <= about.sizes.items():
                found.append(case)
    return found


def _kernel(case: Case) -> Kernel:
    assert isinstance(case.about, Kernel)
    return case.about


@cache
def _timed(scope: Scope, precision: str) -> Sequence[Sequence[float]]:
    """Seconds of each kernel of a mix once the device is at its limit; and the clock that it has there."""
    calls = [case.make() for case in mixed(scope, precision) if case.make]
    allow_tf32(precision == "tf32")  # what was prepared last decides otherwise
    for call in calls:
        call()
    clocks: list[float] = []
    reader = threading.Thread(target=_read, args=(clocks, SECONDS * 2 / 3))
    reader.start()
    rounds: list[list[torch.cuda.Event]] = []
    start = time.perf_counter()
    while time.perf_counter() - start < SECONDS:
        rounds.append(_round(calls))
        if len(rounds) > AHEAD:
            rounds[-1 - AHEAD][-1].synchronize()
    torch.cuda.synchronize()
    reader.join()
    last = rounds[2 * len(rounds) // 3 :]
    found = [[one[at].elapsed_time(one[at + 1]) / 1e3 for one in last] for at in range(len(calls))]
    return [*found, clocks]


def _round(calls: Sequence[Callable[[], Any]]) -> list[torch.cuda.Event]:
    """Every kernel once, with an event before and after."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(len(calls) + 1)]
    events[0].record()
    for call, event in zip(calls, events[1:], strict=True):
        call()
        event.record()
    return events


def _read(clocks: list[float], after: float) -> None:
    """What the driver says of the multiprocessors' clock in the midst of it."""
    time.sleep(after)
    known: Mapping[str, float] = this_machine.clocks()
    clocks.append(known.get("sm", 0.0))
