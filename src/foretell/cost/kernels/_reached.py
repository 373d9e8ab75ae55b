"""How much of a data sheet's rates kernels reach: one table, a source beside each figure.

A figure belongs to an architecture and a kind of unit, and was measured on some of its devices. Another device of
the architecture takes it over by ratio of peaks; so does an architecture without a figure of its own, from the
one it says. The price then says "carried over". What nobody measured has the level of many runs, and says "datasheet".
"""

from __future__ import annotations

import functools
from typing import Any, Final, NamedTuple

from foretell.hardware.cluster import Device


class Reached(NamedTuple):
    """Shares of two peaks that large products reach."""

    matrix: float  # of the flop/s
    stream: float  # of the memory's bandwidth, for the operands of thin products
    devices: tuple[str, ...]  # where it was measured
    source: str


MEMORY: Final = 0.8
"""Of the memory's bandwidth, for all that is not a product: the level that fits published A100 and H100 steps."""

SWEEP: Final = "DeepBench (baidu-research/DeepBench), 160 fp32 products; fitted with the form of _tiles.py"
STEPS: Final = "level that fits published training steps"

TABLE: Final[dict[tuple[str, str], Reached]] = {
    ("maxwell", "vector"): Reached(0.68, 0.30, ("m40",), SWEEP),
    ("pascal", "vector"): Reached(0.93, 0.30, ("p100-pcie", "titanx"), f"{SWEEP}: 0.94 on P100, 0.92 on Titan X"),
    ("hopper", "vector"): Reached(0.77, 0.78, ("h200",), "264 fp32 products on an H200 (studies/h200_kernels)"),
    ("volta", "vector"): Reached(0.86, 0.78, ("v100-16",), SWEEP),
    ("t4", "vector"): Reached(0.50, 0.58, ("t4",), f"{SWEEP}; a 70 W part that does not hold its clock"),
    ("volta", "matrix"): Reached(0.72, 0.78, ("v100-16", "v100-32"), f"{STEPS}: 31 of BLOOM's predecessors on V100"),
    ("ampere", "matrix"): Reached(
        0.83,
        0.80,
        ("a100-40", "a100-80", "a100-pcie-80", "a100-pcie-40"),
        f"{STEPS}: 400 runs of Megatron-DeepSpeed on A100; best product 0.81 (stas00/ml-engineering, A100 PCIe)",
    ),
    ("rtx3090", "matrix"): Reached(
        1.0,
        0.80,
        ("rtx3090",),
        f"{STEPS}: 18 of timm with channels last. Its matrix units accumulate in fp32 at half their rate, which is "
        "easily fed, and it runs above its rated clock",
    ),
    ("rtx4090", "matrix"): Reached(1.0, 0.80, ("rtx3090",), "as the RTX 3090, for the same reasons"),
    ("hopper", "matrix"): Reached(
        0.72,
        0.80,
        ("h100", "h200"),
        f"{STEPS}: bias 0.99 over 65 published H100 runs of NeMo; 481 of nanotron gave 0.68 with waves left out",
    ),
    ("blackwell", "matrix"): Reached(
        0.67, 0.80, ("gb200",), "0.92 of the best product on GB200, 0.729 (stas00/ml-engineering), as on H100"
    ),
    ("b200", "matrix"): Reached(
        0.48,
        0.80,
        ("b200",),
        "products of 4,096 rows on B200 at 1,000 W: 0.50 forward, 0.50 and 0.45 backward "
        "(MooreThreads/SimuMax, configs/system/b200_bf16_ceperm.json)",
    ),
    ("blackwell-ultra", "matrix"): Reached(0.70, 0.80, ("gb300",), f"{STEPS}: 19 on GB300 at 1,400 W"),
    ("cdna3", "matrix"): Reached(
        0.51, 0.80, ("mi300x",), "best product on MI300X 0.514 (stas00/ml-engineering, torch 2.5.1, rocm 6.3)"
    ),
}

LIKE: Final = {
    ("kepler", "vector"): ("maxwell", "vector"),
    ("turing", "vector"): ("volta", "vector"),
    ("ampere", "vector"): ("volta", "vector"),
    ("ada", "vector"): ("volta", "vector"),
    ("blackwell", "vector"): ("hopper", "vector"),
    ("blackwell-ultra", "vector"): ("hopper", "vector"),
    ("turing", "matrix"): ("volta", "matrix"),
    ("ada", "matrix"): ("ampere", "matrix"),
    ("cdna2", "matrix"): ("cdna3", "matrix"),
}
"""Architectures without a figure, and whose they take: the next older or newer one that was measured."""

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

ROW_LAST: Final = {("hopper", "tf32"): {"forward": 1.05, "input_gradient": 0.92, "weight_gradient": 0.72}}
"""Hopper's matrix units take 32-bit operands only with the summed dim innermost; others are turned on the way (280
products on an H200). 16-bit operands may lie either way."""


SHARES: Final = {("mi325x", "fp16"): 0.12, ("mi325x", "bf16"): 0.12, ("mi325x", "fp32"): 0.28}
"""What layers' products reach in a framework, by device and precision, where that is far below the best product of a
search: 74 steps of milabench (BERT, ConvNeXt, ResNet-152) on MI325X in PyTorch of 2025, no library tuned by shape."""

INSTRUCTIONS: Final = {"cdna2": (2.5, 8.5), "cdna3": (2.5, 8.5)}
"""Cycles of a compute unit for what takes an NVIDIA multiprocessor one, for kernels bound by their instructions, by
elements of 32 and of 16 bits: half as many lanes, and conversions from and to 16 bits made of several instructions. The
same 74 steps."""
HALF: Final = 2  # bytes of a 16-bit number


class Rates(NamedTuple):
    """What a device does for products in one precision."""

    flops: float  # flop/s of all multiprocessors together
    stream: float  # B/s of operands
    provenance: str


@functools.cache
def rates(device: Device, precision: str) -> Rates:
    """The rates that products in this precision reach on a device."""
    peak = device.matrix_rate(precision)
    unit = "matrix" if peak in (device.peak.get(precision), _tf32(device, precision)) else "vector"
    own = TABLE.get((device.name, unit)) or TABLE.get((device.architecture, unit))
    like = LIKE.get((device.architecture, unit))
    found = own or (TABLE[like] if like else UNKNOWN)
    provenance = "measured" if device.name in found.devices else "carried over" if found.devices else "datasheet"
    share = SHARES.get((device.name, precision), found.matrix * LOW.get(precision, 1.0))
    return Rates(peak * share, device.memory_bandwidth * found.stream, provenance)


def _tf32(device: Device, precision: str) -> float | None:
    """A device without TF32 multiplies such numbers in fp32, in matrix units if it has them for it."""
    return device.peak.get("fp32") if precision == "tf32" else None


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
    wide, narrow = INSTRUCTIONS.get(device.architecture, (1.0, 1.0))
    return narrow if width <= HALF else wide
