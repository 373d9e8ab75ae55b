"""How much of a data sheet's rates kernels reach.

A figure belongs to an architecture and a kind of unit (`hardware/architectures/`), and was measured on some of its
devices. Another device of the architecture takes it over by ratio of peaks; so does an architecture without a figure of
its own, from the one it says. The price then says "carried over". What nobody measured has the level of many runs, and
says "datasheet".
"""

from __future__ import annotations

import functools
from typing import Any, Final, NamedTuple

from foretell.caches import forgettable
from foretell.hardware.architecture import Reached
from foretell.hardware.cluster import Device
from foretell.hardware.members import architecture

MEMORY: Final = 0.8
"""Of the memory's bandwidth, for all that is not a product: the level that fits published A100 and H100 steps."""

UNKNOWN: Final = Reached(0.72, MEMORY, (), "one constant for 458 published runs of dense language models, all devices")

LOW: Final = {"fp8": 0.95, "mxfp8": 0.90, "nvfp4": 0.80}
"""What products in fewer bits reach of the 16-bit share: layers ran 1.9, 1.8 and 3.2 times as fast as in bf16, where
the peaks are 2, 2 and 4 times as high (published H100, GB200 and GB300 steps)."""


VECTOR_BYTES: Final = 16
"""What one load of a product's newest kernels takes: every row of an operand must begin at a multiple of it."""

OLDER: Final = {"bf16": (1000.0, 500.0), "fp16": (1000.0, 500.0), "tf32": (540.0, 540.0)}
"""Rows that begin elsewhere leave the kernels of older generations, with so many flops a cycle and multiprocessor:
where rows begin at multiples of 4 bytes, and at others. Products with 30,522 and with 50,257 columns on an H200
(studies/h200_kernels: 245, 94 to 150 and 130 Tflop/s); the same instructions run on the devices before it."""

HALF: Final = 2  # bytes of a 16-bit number


class Rates(NamedTuple):
    """What a device does for products in one precision."""

    flops: float  # flop/s of all multiprocessors together
    stream: float  # B/s of operands
    provenance: str


@forgettable
@functools.lru_cache(maxsize=256)
def rates(device: Device, precision: str) -> Rates:
    """The rates that products in this precision reach on a device."""
    peak = device.matrix_rate(precision)
    unit = "matrix" if peak in (device.peak.get(precision), _tf32(device, precision)) else "vector"
    found = reached_by(device, unit)
    provenance = "measured" if device.name in found.devices else "carried over" if found.devices else "datasheet"
    share = device.shares.get(precision, found.products * LOW.get(precision, 1.0))
    return Rates(peak * share, device.memory_bandwidth * found.operands, provenance)


def reached_by(device: Device, unit: str) -> Reached:
    """What units of a device reach of its data sheet."""
    return device.reached.get(unit) or _of_architecture(device.architecture, unit)


def held_back(device: Device) -> float:
    """What a limit of power leaves of the rate that others of the architecture reach in products.

    It holds for attention too, whose shares of the peak are those of devices without one.
    """
    own = device.reached.get("matrix")
    return min(1.0, own.products / _of_architecture(device.architecture, "matrix").products) if own else 1.0


def _of_architecture(name: str, unit: str) -> Reached:
    built = architecture(name)
    like = built.reached_like.get(unit)
    return built.reached.get(unit) or (architecture(like).reached.get(unit) if like else None) or UNKNOWN


def _tf32(device: Device, precision: str) -> float | None:
    """A device without TF32 multiplies such numbers in fp32, in matrix units if it has them for it."""
    return device.peak.get("fp32") if precision == "tf32" else None


def layout_share(device: Device, precision: str, part: str) -> float:
    """Share of the rate of a part of a product whose operands do not lie as the matrix units want them."""
    return architecture(device.architecture).layout.get(precision, {}).get(part, 1.0)


def memory_rate(device: Device) -> float:
    """B/s that memory-bound kernels reach."""
    return device.memory_bandwidth * MEMORY


def by_rows(device: Device, precision: str, *row_bytes: Any) -> Any:
    """Share of the rate that is left when rows of these bytes do not begin at whole vectors; numbers or arrays."""
    if precision not in OLDER:
        return 1.0
    own = rates(device, precision).flops / (device.multiprocessors * device.clock_hz)
    even, odd = (min(1.0, older / own) for older in OLDER[precision])
    whole, words = True, True
    for size in row_bytes:
        whole = whole & (size % VECTOR_BYTES == 0)
        words = words & (size % 4 == 0)
    return whole * 1.0 + (1 - whole) * (words * even + (1 - words) * odd)


def cycle_seconds(device: Device, width: int) -> float:
    """Seconds for a cycle of all multiprocessors together: what kernels cost that are bound by their instructions, on
    elements of so many bytes."""
    return instructions(device, width) / (device.multiprocessors * device.clock_hz)


def instructions(device: Device, width: int) -> float:
    """How many cycles it takes for what takes one where kernels were measured."""
    wide, narrow = architecture(device.architecture).instructions
    return narrow if width <= HALF else wide
