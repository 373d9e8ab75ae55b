"""What a device's limit of power costs: kernels that are timed alone run at clocks which no step keeps.

On one H200 a large product reaches 770 to 800 Tflop/s in a few calls and 666 when it goes on, at three quarters of the
clock (studies/h200_power). A calibration times some kernels both ways; their ratio holds for all kernels like them. A
record of before has none: it tells kernels from each other, but not the level of those that the limit slows down.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from foretell.cost.samples import Calibration, Kernel
from foretell.hardware.measured import Point
from foretell.model.autocast import PRODUCTS

ATTENTION, PRODUCT, MOVED = "attention", "matmul", "elementwise"
"""Kinds of kernels that draw alike: attention, other products, and what moves memory."""

STANDING_IN: Final = {"fp16": "bf16", "tf32": "fp32"}
"""Precisions whose ratio is taken where their own was not timed: attention in tf32 is that in fp32."""

LARGEST: Final = 6
"""Of the points of a kind, those with the most work: small kernels draw too little to be slowed down."""


class UnderPower(NamedTuple):
    """How many times as long kernels take among others as alone."""

    ratios: Mapping[tuple[str, str], float]  # by what draws alike, and precision

    @classmethod
    def of(cls, found: Calibration) -> UnderPower:
        """As kernels were timed both ways; empty where none was."""
        known = [(one.about, one.p50) for one in found.samples if isinstance(one.about, Kernel)]
        alone = {_words(about): seconds for about, seconds in known if not about.sustained}
        logs: dict[tuple[str, str], list[float]] = defaultdict(list)
        for about, seconds in known:
            plain = _words(msgspec.structs.replace(about, sustained=False))
            if about.sustained and plain in alone:
                kind = _alike(about.operator["operator"]), about.precision
                logs[kind].append(math.log(seconds / alone[plain]))
        return cls({kind: max(1.0, math.exp(statistics.median(each))) for kind, each in logs.items()})

    def told(self) -> str:
        """For people: what draws alike, in each precision."""
        names = {PRODUCT: "products", ATTENTION: "attention", MOVED: "others"}
        return ", ".join(
            f"{names[kind]} {precision} {ratio:.2f}" for (kind, precision), ratio in sorted(self.ratios.items())
        )

    def slower(self, kind: str, points: Iterable[Point]) -> float:
        """How many times as long a kind of kernels takes in a step as its points say."""
        operator, precision = kind.split()[0], kind.split()[-1]
        for word in (precision, STANDING_IN.get(precision, precision)):
            if (_alike(operator), word) in self.ratios:
                return self.ratios[_alike(operator), word]
        if self.ratios or operator not in PRODUCTS:
            return 1.0
        largest = sorted(points)[-LARGEST:]
        return max(1.0, math.exp(-statistics.median(log for *_, log in largest)))


def _alike(operator: str) -> str:
    if operator == ATTENTION:
        return ATTENTION
    return PRODUCT if operator in PRODUCTS else MOVED


def _words(about: Kernel) -> bytes:
    return msgspec.json.encode(about, order="deterministic")
