"""What a device's limit of power costs: kernels that are timed alone run at clocks which no step keeps.

On one H200 a large product reaches 770 to 800 Tflop/s in a few calls and 666 when it goes on, at three quarters of the
clock (studies/h200_power). A calibration times some kernels both ways. The ratio goes with their sizes: the longest are
slowed down before a few calls are over. A record of before has no ratios: it tells kernels from each other, but not the
level of those that the limit slows down.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from foretell.cost.kernels._measured import sizes
from foretell.cost.samples import Calibration, Kernel, Sample
from foretell.hardware.measured import Point, Surface
from foretell.model.autocast import PRODUCTS

ATTENTION, PRODUCT, MOVED = "attention", "matmul", "elementwise"
"""Kinds of kernels that draw alike: attention, other products, and what moves memory."""

STANDING_IN: Final = {"fp16": "bf16", "tf32": "fp32"}
"""Precisions whose ratio is taken where their own was not timed: attention in tf32 is that in fp32."""

LARGEST: Final = 6
"""Of the points of a kind, those with the most work: small kernels draw too little to be slowed down."""


class UnderPower(NamedTuple):
    """How many times as long kernels take among others as alone, by their sizes."""

    ratios: Mapping[tuple[str, str], Surface]  # by what draws alike, and precision

    @classmethod
    def of(cls, found: Calibration) -> UnderPower:
        """As kernels were timed both ways; empty where none was."""
        points: dict[tuple[str, str], list[Point]] = defaultdict(list)
        for among, alone, about in _pairs(found.samples):
            log = max(0.0, math.log(among.p50 / alone.p50))
            for action in about.actions():
                first, second = (math.log2(max(float(size), 1.0)) for size in sizes(action.cost))
                points[_alike(about.operator["operator"]), about.precision].append((first, second, log))
        return cls({kind: Surface(tuple(each)) for kind, each in points.items()})

    def among(self, kind: str, points: Sequence[Point]) -> Surface:
        """A kind of kernels in a step, from points of them alone."""
        operator, precision = kind.split()[0], kind.split()[-1]
        for word in (precision, STANDING_IN.get(precision, precision)):
            if known := self.ratios.get((_alike(operator), word)):
                return Surface(tuple((x, y, log + math.log(known.factor(2**x, 2**y))) for x, y, log in points))
        if self.ratios or operator not in PRODUCTS:
            return Surface(tuple(points))
        largest = sorted(points)[-LARGEST:]
        return Surface(tuple(points)).slower(max(1.0, math.exp(-statistics.median(log for *_, log in largest))))

    def told(self) -> str:
        """For people: what draws alike, in each precision, in the median."""
        names = {PRODUCT: "products", ATTENTION: "attention", MOVED: "others"}
        middle = {kind: statistics.median(log for *_, log in each.points) for kind, each in self.ratios.items()}
        return ", ".join(f"{names[kind]} {word} {math.exp(log):.2f}" for (kind, word), log in sorted(middle.items()))


def _pairs(samples: Sequence[Sample]) -> Iterator[tuple[Sample, Sample, Kernel]]:
    """What was timed both ways: among others, alone, and what it is."""
    kernels = [(one, one.about) for one in samples if isinstance(one.about, Kernel)]
    alone = {_words(about): one for one, about in kernels if not about.sustained}
    for one, about in kernels:
        plain = _words(msgspec.structs.replace(about, sustained=False))
        if about.sustained and plain in alone:
            yield one, alone[plain], about


def _alike(operator: str) -> str:
    if operator == ATTENTION:
        return ATTENTION
    return PRODUCT if operator in PRODUCTS else MOVED


def _words(about: Kernel) -> bytes:
    return msgspec.json.encode(about, order="deterministic")
