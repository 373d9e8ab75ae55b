"""Whether a run has the memory that it needs: it fits, it fits while its allocator retries, or it fails.

What a device reports grows into the room there is: an allocator keeps what was given back, and lets go of it when the
device is full. So a run needs its tensors at most, what the allocator cannot let go of, the device's context and the
communicators. Between that and what would be reserved with room to spare lies a run that works, but whose allocations
fail at first, are cleared and tried again, each time behind all kernels of the device.
"""

from __future__ import annotations

import math
import statistics
from typing import Final, Protocol

FITS, RETRIES, FAILS = "fits", "fits with retries", "fails"
VERDICTS: Final = (FITS, RETRIES, FAILS)

STUCK: Final = 1.02
"""Of bytes in tensors at most, with what lies between them in segments that are partly in use: the most of 12 plans
whose programs were replayed by the rules of PyTorch's allocator on ever smaller devices (`benchmarks/allocator.py`:
1.000 to 1.019, where 1.00 to 1.08 is reserved on a device without an end)."""


class Peak(Protocol):
    """Bytes of the fullest rank: in tensors, as the allocator reserves them, as the device reports them."""

    @property
    def allocated(self) -> float: ...
    @property
    def reserved(self) -> float: ...
    @property
    def device(self) -> float: ...


def needed_bytes(memory: Peak) -> float:
    """The least that a device must have for a run, on its fullest rank."""
    return min(memory.device, memory.device - memory.reserved + STUCK * memory.allocated)


SURE: Final = 0.9
"""How sure a plan that is recommended is to fit."""


def sure_bytes(most: float, chance: float, spread: float) -> float:
    """The most that a device may report of a plan that is so sure to fit where a run can hold so many bytes."""
    return most * math.exp(-spread * statistics.NormalDist().inv_cdf(chance))


def interval_bytes(memory: Peak, most: float, spread: float) -> tuple[float, float]:
    """From the least to the most that a device is likely to report, 5 % below and 5 % above: as wide as the chance to
    fit has it. Where a run has what it needs, a device reports no more than a process can hold."""
    wide = math.exp(spread * statistics.NormalDist().inv_cdf(0.95))
    low, high = memory.device / wide, memory.device * wide
    return (min(low, most), min(high, most)) if needed_bytes(memory) <= most else (low, high)


def verdict(memory: Peak, usable: float, most: float) -> str:
    """One of `VERDICTS`, where a run fills so many bytes with room to spare, and can hold so many at all."""
    if memory.device <= usable:
        return FITS
    return RETRIES if needed_bytes(memory) <= most else FAILS


def chance(memory: Peak, most: float, spread: float) -> float:
    """How probable it is that a run that can hold so many bytes does not fail for want of memory.

    Memory is off by a factor whose logarithm spreads so far (`oracle/memory_band.py`).
    """
    return statistics.NormalDist(0.0, spread).cdf(math.log(most / needed_bytes(memory)))
