"""Published sweeps of products and convolutions: one kernel each, priced without a model or a plan.

A sweep times a call with its own launch and timer, which is no kernel's: one constant for each device, found on every
other product of it and used for the rest, and the other way round. Products without a time are the best that a search
found, with the rate that it printed.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from foretell.cost.kernels import kernel_seconds
from foretell.hardware.cluster import Device
from foretell.hardware.members import device
from foretell.model.operator import Operator
from foretell.model.operators.convolution import Convolution, extent
from foretell.model.operators.matmul import Matmul
from foretell.plan.policies.precision import FORMATS
from foretell.plan.trainer import trainer
from foretell.program.action import Compute
from foretell.validation import hardware_words
from foretell.validation.studies._spelling import plain_kernel
from foretell.validation.study import Line, MeasuredCall, NotScored, Unmapped, mapped, real, stated, whole, whole_or

COLUMNS = frozenset({"id", "gpu", "op", "phase", "dtype", "m", "n", "k", "time_ms"})

DEVICES: Final = {
    "V100 (DGX-1)": "v100-16",
    "P100-PCIe": "p100-pcie",
    "Titan X (Pascal)": "titanx",
    "A100-PCIe": "a100-pcie-80",
}
FORMS: Final = {"FP32": "fp32", "BF16": "bf16", "FP16": "fp16", "FP8 e4m3": "fp8", "FP8": "fp8", "TF32": "tf32"}
PARTS: Final = {"fwd": "forward", "bwd_input": "input_gradient", "bwd_weight": "weight_gradient"}
TIMERS: Final = tuple(microseconds * 1e-6 for microseconds in range(0, 61, 2))
LEAST: Final = 20
"""Products of a device, from which on its timer is found; below it is none."""


class Timed(NamedTuple):
    """What was measured and what the kernel alone is said to take, in seconds."""

    measured: float
    predicted: float


def rows(lines: list[Line]) -> Iterator[MeasuredCall | NotScored]:
    """Every kernel of every source."""
    lines = [plain_kernel(line) for line in lines]
    timers = _timers(lines)
    return mapped(((line["id"], line) for line in lines), lambda name, line: _call(name, line, timers))


def _call(name: str, line: Line, timers: Mapping[str, float]) -> MeasuredCall:
    measured, predicted = timed(line)
    what = f"{line['op']} {line['phase']} {line['dtype']} on {line['gpu']}"
    kind = "best product" if not line["time_ms"] else f"{line['op']}, {PARTS[line['phase']].replace('_', ' ')}"
    own = timers.get(name, timers.get(line["gpu"], 0.0)) if line["time_ms"] else 0.0
    tags = (line.get("source", ""), device_name(line), kind)
    return MeasuredCall(id=name, what=what, seconds=measured, predicted=predicted + own, subsets=tags)


def timed(line: Line) -> Timed:
    """A line with the price of its kernel alone."""
    word = stated(line, "dtype")
    if word not in FORMS:
        raise Unmapped(f"dtype {word} is not known")
    if line["op"] not in ("gemm", "conv2d"):
        raise Unmapped(f"op {line['op']} is not known")
    predicted = kernel(line, device(device_name(line)), FORMS[word])
    if real(line, "time_ms"):
        return Timed(real(line, "time_ms") * 1e-3, predicted)
    if line["op"] != "gemm" or not real(line, "tflops"):
        raise Unmapped("neither a time nor a rate was measured")
    flops = 2.0 * whole(line, "m") * whole(line, "n") * whole(line, "k")
    return Timed(flops / (real(line, "tflops") * 1e12), predicted)


def device_name(line: Line) -> str:
    """The device that a line means."""
    gpu = stated(line, "gpu")
    return DEVICES.get(gpu) or hardware_words.device(gpu)


def kernel(line: Line, on: Device, word: str) -> float:
    """Seconds of the kernel alone."""
    if line.get("phase") not in PARTS:
        raise Unmapped(f"phase {line.get('phase') or 'a blank'} is not known")
    operator, sizes = _product(line) if line["op"] == "gemm" else _convolution(line)
    width = 2 if word == "fp8" else FORMATS[word].operand
    part = PARTS[line["phase"]]
    cost = operator.part(part, sizes, dict.fromkeys(("x", "w", "y"), width))
    action = Compute("layers.0", str(type(operator).__struct_config__.tag), part, sizes, cost)
    price = kernel_seconds(action, on, FORMATS[word], trainer("pytorch"))
    return price.seconds if word != "fp8" else price.matrix  # a sweep has its operands in fp8 already


def _product(line: Line) -> tuple[Operator, dict[str, int]]:
    return Matmul(), {"batch": 1, "row": whole(line, "m"), "in": whole(line, "k"), "out": whole(line, "n")}


def _convolution(line: Line) -> tuple[Operator, dict[str, int]]:
    window = whole(line, "kernel_h"), whole(line, "kernel_w")
    stride = whole(line, "stride_h"), whole(line, "stride_w")
    padding = whole_or(line, "pad_h", 0), whole_or(line, "pad_w", 0)
    image = whole(line, "in_h"), whole(line, "in_w")
    height, width = (extent(image[at], window[at], stride[at], padding[at]) for at in (0, 1))
    sizes = {"sample": whole(line, "batch"), "group": 1, "in": whole(line, "in_c"), "out": whole(line, "out_c")}
    return Convolution(window, stride, padding, (1, 1)), sizes | {"height": height, "width": width}


def _timers(lines: list[Line]) -> dict[str, float]:
    """Seconds that a sweep adds to a call: for each product those of the other half, for a device those of all."""
    products: dict[str, list[tuple[str, Timed]]] = {}
    for line in lines:
        if line["op"] == "gemm" and line["time_ms"]:
            try:
                products.setdefault(line["gpu"], []).append((line["id"], timed(line)))
            except Unmapped:
                continue
    found: dict[str, float] = {}
    for gpu, own in products.items():
        if len(own) >= LEAST:
            halves = timer_of([one for _, one in own[1::2]]), timer_of([one for _, one in own[::2]])
            found |= {name: halves[at % 2] for at, (name, _) in enumerate(own)}
            found[gpu] = timer_of([one for _, one in own])
    return found


def timer_of(found: list[Timed]) -> float:
    """The sweep's own seconds a call that fit these best."""

    def off(timer: float) -> float:
        return statistics.mean(abs((one.predicted + timer) / one.measured - 1) for one in found)

    return min(TIMERS, key=off)
