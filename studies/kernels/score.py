"""Kernel prices against measured products and convolutions: `python studies/kernels/score.py`.

How a line becomes a kernel is in `foretell.validation.studies.kernels`; `foretell validate` with the same file prints
the errors by source. Each sweep times a call with its own launch and timer, which is no kernel's: one constant per
device, found on every other row and used for the rest, and the other way round.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from foretell.validation.studies.kernels import FORMS, PARTS, Timed, timed, timer_of
from foretell.validation.study import Line, Unmapped, csv_lines

MEASURED = Path(__file__).with_name("measured.csv")

SWEPT = ("V100 (DGX-1)", "T4", "P100-PCIe", "Titan X (Pascal)", "M40")


class Score(NamedTuple):
    """Relative errors."""

    count: int
    mean: float
    median: float
    bias: float  # median of predicted over measured


def rows() -> list[Line]:
    return csv_lines(MEASURED)


def pairs(op: str, gpu: str, phase: str = "fwd") -> list[Timed]:
    chosen = (row for row in rows() if (row["op"], row["gpu"], row["phase"]) == (op, gpu, phase) and row["time_ms"])
    return [timed(row) for row in chosen]


def score(found: list[Timed], timer: float) -> Score:
    ratios = [(pair.predicted + timer) / pair.measured for pair in found]
    errors = [abs(ratio - 1) for ratio in ratios]
    return Score(len(found), statistics.mean(errors), statistics.median(errors), statistics.median(ratios))


def halves(found: list[Timed]) -> Score:
    """Each half with the timer of the other; every figure is the mean of the two."""
    even, odd = found[::2], found[1::2]
    first, second = score(odd, timer_of(even)), score(even, timer_of(odd))
    return Score(len(found), *((a + b) / 2 for a, b in zip(first[1:], second[1:], strict=True)))


def sweeps() -> Iterator[tuple[str, str, Score]]:
    """Device, what was swept, errors."""
    for gpu in SWEPT:
        products = pairs("gemm", gpu)
        yield gpu, "products", halves(products)
        timer = timer_of(products)
        for phase, part in PARTS.items():
            yield gpu, f"convolution, {part.replace('_', ' ')}", score(pairs("conv2d", gpu, phase), timer)


def best() -> Iterator[tuple[str, str, float, float]]:
    """The fastest product that a search found on a device: Tflop/s measured and predicted."""
    for row in rows():
        if not row["m"] or row["time_ms"]:
            continue
        try:
            found = timed(row)
        except Unmapped:  # devices that are not described
            continue
        rate = float(row["tflops"])
        yield row["gpu"], FORMS[row["dtype"]], rate, rate * found.measured / found.predicted


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
