"""Kernels that write gradients smaller before they travel and read them again, by PyTorch's operators on a GPU.

Each is traffic at the rate that memory-bound kernels reach, and a start: an H200, the half of 140 calls that was not
set aside (studies/h200_experts_and_context/around.jsonl). Ternary numbers take what QSGD's take, deep gradient
compression and thresholds what top-k takes: these three were not measured. What a rank still owes is read and written
once more. A processor's are not priced: they are written in NumPy, one rank after the other.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from foretell.cost.kernels import memory_rate
from foretell.hardware.cluster import Device
from foretell.plan.policies.compression import Compression

START: Final = 4.5e-6
"""Seconds of a kernel that has little to do."""

OWED: Final = 22.0
"""Bytes a number: added before it is written, and what is left after."""

ORTHOGONAL: Final = (45e-6, 9e-6)
"""Seconds of one matrix's QR, and more for each column."""


class CompressionKernels(NamedTuple):
    """Bytes that kernels move for each number of a gradient, and how many kernels there are."""

    write: float
    read: float
    kernels: int
    each: bool  # whether what every rank wrote is read by itself; else their sum


KERNELS: Final = {
    "fp16": CompressionKernels(5.6, 10.7, 2, False),
    "int8": CompressionKernels(45.0, 21.0, 3, True),
    "qsgd": CompressionKernels(94.3, 21.0, 9, True),
    "ternary": CompressionKernels(94.3, 21.0, 9, True),
    "1bit": CompressionKernels(81.0, 21.0, 12, True),
    "topk": CompressionKernels(84.0 + OWED, 5.5, 8, False),
    "dgc": CompressionKernels(84.0 + 2 * OWED, 5.5, 8, False),
    "threshold": CompressionKernels(84.0 + OWED, 5.5, 8, False),
    "powersgd": CompressionKernels(15.0 + OWED, 6.0, 4, False),
}


def compressing(
    compression: Compression, elements: float, tensors: float, ranks: int, device: Device
) -> tuple[float, float]:
    """Seconds of writing the gradients of so many weights, and of reading what all ranks wrote."""
    found = KERNELS.get(compression.method)
    if found is None or device.is_processor or ranks == 1:
        return 0.0, 0.0
    first, column = ORTHOGONAL
    extra = first + column * compression.rank if compression.rank else 0.0
    write = found.write * elements / memory_rate(device) + (found.kernels * START + extra) * tensors
    times = ranks if found.each else 1
    return write, times * (found.read * elements / memory_rate(device) + START * tensors)
