"""Kernel prices against measured products and convolutions: `python studies/kernels/score.py`.

Each sweep times a call with its own launch and timer, which is no kernel's: one constant per device, found on every
other row and used for the rest, and the other way round. The devices' own figures come from the table in foretell.
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from foretell.cost.kernels import kernel_seconds
from foretell.hardware.cluster import Device
from foretell.hardware.members import device
from foretell.model.operator import Operator
from foretell.model.operators.convolution import Convolution, extent
from foretell.model.operators.matmul import Matmul
from foretell.plan.policies.precision import FORMATS
from foretell.plan.trainer import trainer
from foretell.program.action import Compute

MEASURED = Path(__file__).with_name("measured.csv")

DEVICES = {
    "V100 (DGX-1)": "v100-16",
    "T4": "t4",
    "P100-PCIe": "p100-pcie",
    "Titan X (Pascal)": "titanx",
    "M40": "m40",
    "A100-PCIe": "a100-pcie-80",
    "GB200": "gb200",
    "H200-SXM": "h200",
    "MI300X": "mi300x",
}
FORMS = {"FP32": "fp32", "BF16": "bf16", "FP16": "fp16", "FP8 e4m3": "fp8", "TF32": "tf32"}
PARTS = {"fwd": "forward", "bwd_input": "input_gradient", "bwd_weight": "weight_gradient"}
TIMERS = tuple(microseconds * 1e-6 for microseconds in range(0, 61, 2))


class Pair(NamedTuple):
    """What was measured and what the kernel alone is said to take, in seconds."""

    measured: float
    predicted: float


class Score(NamedTuple):
    """Relative errors."""

    count: int
    mean: float
    median: float
    bias: float  # median of predicted over measured


def rows() -> list[dict[str, str]]:
    with MEASURED.open(newline="") as file:
        return list(csv.DictReader(file))


def product(row: dict[str, str]) -> tuple[Operator, dict[str, int], tuple[str, ...]]:
    sizes = {"batch": 1, "row": int(row["m"]), "in": int(row["k"]), "out": int(row["n"])}
    return Matmul(), sizes, ("x", "w", "y")


def convolution(row: dict[str, str]) -> tuple[Operator, dict[str, int], tuple[str, ...]]:
    kernel = int(row["kernel_h"]), int(row["kernel_w"])
    stride = int(row["stride_h"]), int(row["stride_w"])
    padding = int(row["pad_h"]), int(row["pad_w"])
    image = int(row["in_h"]), int(row["in_w"])
    height, width = (extent(image[i], kernel[i], stride[i], padding[i]) for i in (0, 1))
    sizes = {
        "sample": int(row["batch"]),
        "group": 1,
        "in": int(row["in_c"]),
        "out": int(row["out_c"]),
        "height": height,
        "width": width,
    }
    return Convolution(kernel, stride, padding, (1, 1)), sizes, ("x", "w", "y")


def predicted(row: dict[str, str], on: Device, word: str) -> float:
    operator, sizes, operands = product(row) if row["op"] == "gemm" else convolution(row)
    width = 2 if word == "fp8" else FORMATS[word].operand
    cost = operator.part(PARTS[row["phase"]], sizes, dict.fromkeys(operands, width))
    tag = str(type(operator).__struct_config__.tag)
    action = Compute("layers.0", tag, PARTS[row["phase"]], sizes, cost)
    price = kernel_seconds(action, on, FORMATS[word], trainer("pytorch"))
    return price.seconds if word != "fp8" else price.matrix  # the sweep has its operands in fp8 already


def pairs(op: str, gpu: str, phase: str = "fwd") -> list[Pair]:
    chosen = [row for row in rows() if (row["op"], row["gpu"], row["phase"]) == (op, gpu, phase) and row["time_ms"]]
    on = device(DEVICES[gpu])
    return [Pair(float(row["time_ms"]) * 1e-3, predicted(row, on, FORMS[row["dtype"]])) for row in chosen]


def score(found: list[Pair], timer: float) -> Score:
    ratios = [(pair.predicted + timer) / pair.measured for pair in found]
    errors = [abs(ratio - 1) for ratio in ratios]
    return Score(len(found), statistics.mean(errors), statistics.median(errors), statistics.median(ratios))


def timer_of(found: list[Pair]) -> float:
    """The sweep's own seconds a call that fit these rows best."""
    return min(TIMERS, key=lambda timer: score(found, timer).mean)


def halves(found: list[Pair]) -> Score:
    """Each half with the timer of the other; every figure is the mean of the two."""
    even, odd = found[::2], found[1::2]
    first, second = score(odd, timer_of(even)), score(even, timer_of(odd))
    return Score(len(found), *((a + b) / 2 for a, b in zip(first[1:], second[1:], strict=True)))


def sweeps() -> Iterator[tuple[str, str, Score]]:
    """Device, what was swept, errors."""
    for gpu in list(DEVICES)[:5]:
        products = pairs("gemm", gpu)
        yield gpu, "products", halves(products)
        timer = timer_of(products)
        for phase, part in PARTS.items():
            yield gpu, f"convolution, {part.replace('_', ' ')}", score(pairs("conv2d", gpu, phase), timer)


def best() -> Iterator[tuple[str, str, float, float]]:
    """The fastest product that a search found on a device: Tflop/s measured and predicted."""
    for row in rows():
        if row["gpu"] in DEVICES and row["m"] and not row["time_ms"]:
            word = FORMS[row["dtype"]]
            flops = 2 * int(row["m"]) * int(row["n"]) * int(row["k"])
            yield (
                row["gpu"],
                word,
                float(row["tflops"]),
                flops / predicted(row, device(DEVICES[row["gpu"]]), word) / 1e12,
            )


def report() -> Iterator[str]:
    yield f"{'device':<18}{'sweep':<30}{'rows':>5}{'mean':>7}{'median':>8}{'bias':>7}"
    for gpu, what, found in sweeps():
        yield f"{gpu:<18}{what:<30}{found.count:>5}{found.mean:>7.1%}{found.median:>8.1%}{found.bias:>7.2f}"
    yield ""
    yield f"{'device':<18}{'best product':<16}{'measured':>10}{'predicted':>11}  Tflop/s"
    for gpu, word, measured, said in best():
        yield f"{gpu:<18}{word:<16}{measured:>10.0f}{said:>11.0f}"


if __name__ == "__main__":
    print("\n".join(report()))
