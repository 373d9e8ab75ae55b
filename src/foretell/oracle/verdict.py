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

SPREAD: Final = 0.1
"""Of the logarithm of memory as measured over as predicted: about the mean error of all runs. Of the ultra-scale sweep,
whose failures were all kept, 18 of 18 ran that were foretold to with 90 to 99 %, 48 of 62 with 50 to 90 % (72 in the
mean), 4 of 39 with 10 to 50 % and none of 215 below (`foretell validate --study ultrascale_h100`)."""


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


def sure_bytes(most: float, chance: float) -> float:
    """The most that a device may report of a plan that is so sure to fit where a run can hold so many bytes."""
    return most * math.exp(-SPREAD * statistics.NormalDist().inv_cdf(chance))


ENDS: Final = (0.90, 1.73)
"""Over what is predicted, between which nine in ten published numbers lie, 5 % below and 5 % above, every source with
the same weight and predicted without the constants that it was in view of. `foretell validate` learns them again, and
counts how many numbers of each source lie between the ends that the other sources taught. They do not say whether a run
fits: most that is printed beyond a prediction is what an allocator and libraries take where there is room."""


def interval_bytes(size: float) -> tuple[float, float]:
    """From the least to the most bytes that a device with room is likely to report where so many are predicted."""
    return size * ENDS[0], size * ENDS[1]


def verdict(memory: Peak, usable: float, most: float) -> str:
    """One of `VERDICTS`, where a run fills so many bytes with room to spare, and can hold so many at all."""
    if memory.device <= usable:
        return FITS
    return RETRIES if needed_bytes(memory) <= most else FAILS


def chance(memory: Peak, most: float) -> float:
    """How probable it is that a run that can hold so many bytes does not fail for want of memory."""
    return statistics.NormalDist(0.0, SPREAD).cdf(math.log(most / needed_bytes(memory)))
