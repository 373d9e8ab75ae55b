"""What a calibration says of kernels under the limit of power: those that it timed alone and among others.

A record of before has none among others: it tells kernels from each other, but not the level of those that the limit
slows down, since it timed them at clocks that no long step keeps.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from foretell.cost.energy import IDLE, above_idle
from foretell.cost.kernels._measured import sizes
from foretell.cost.power_limit import PRODUCT, alike
from foretell.cost.samples import Calibration, Kernel, Sample, form_of
from foretell.hardware.cluster import Device
from foretell.hardware.measured import Point, Surface, UnderPower
from foretell.model.autocast import PRODUCTS

LARGEST: Final = 6
"""Of the points of a kind, those with the most work: small kernels draw too little to be slowed down."""


BESIDE: Final = {"tf32": "fp32"}
"""What the others of a mix are in, where not as its products."""


def under_power(found: Calibration, device: Device) -> UnderPower | None:
    """Ratios of kernels that were timed both ways, and what they would have drawn together; None: there are none."""
    points: dict[str, list[Point]] = defaultdict(list)
    mixes: dict[tuple[str, bool], list[tuple[float, float]]] = defaultdict(list)  # by precision, of products or others
    for among, alone, about in _pairs(found.samples):
        log, form = max(0.0, math.log(among.p50 / alone.p50)), form_of(about.precision)
        actions = list(about.actions())
        for action in actions:
            first, second = (math.log2(max(float(size), 1.0)) for size in sizes(action.cost))
            points[f"{alike(action.operator)} {about.precision}"].append((first, second, log))
        joules = sum(float(above_idle(one, alone.p50 / len(actions), device, form)) for one in actions)
        mixes[about.precision, about.operator["operator"] == PRODUCT].append((alone.p50, joules))
    if not points:
        return None
    products = {word: own for (word, product), own in mixes.items() if product}
    drawn = {word: _watts([*own, *mixes[BESIDE.get(word, word), False]], device) for word, own in products.items()}
    return UnderPower({kind: Surface(tuple(each)) for kind, each in points.items()}, drawn)


def _watts(mix: Sequence[tuple[float, float]], device: Device) -> float:
    seconds, joules = (sum(each) for each in zip(*mix, strict=True))
    return device.power_watts * IDLE + joules / seconds


def as_it_was(kind: str, points: Sequence[Point]) -> Surface:
    """A kind of kernels of a record that has none among others: products are not taken to be faster than the formula
    has them, by the largest of them."""
    surface = Surface(tuple(points))
    if kind.split()[0] not in PRODUCTS:
        return surface
    largest = sorted(points)[-LARGEST:]
    return surface.slower(max(1.0, math.exp(-statistics.median(log for *_, log in largest))))


def told(known: UnderPower) -> str:
    """For people: what draws alike, in each precision, in the median."""
    names = {"matmul": "products", "attention": "attention", "elementwise": "others"}
    rows: list[str] = []
    for kind, each in sorted(known.ratios.items()):
        word, precision = kind.split()
        rows.append(f"{names[word]} {precision} {math.exp(statistics.median(log for *_, log in each.points)):.2f}")
    return ", ".join(rows)


def _pairs(samples: Sequence[Sample]) -> Iterator[tuple[Sample, Sample, Kernel]]:
    """What was timed both ways: among others, alone, and what it is."""
    kernels = [(one, one.about) for one in samples if isinstance(one.about, Kernel)]
    alone = {_words(about): one for one, about in kernels if not about.sustained}
    for one, about in kernels:
        plain = _words(msgspec.structs.replace(about, sustained=False))
        if about.sustained and plain in alone:
            yield one, alone[plain], about


def _words(about: Kernel) -> bytes:
    return msgspec.json.encode(about, order="deterministic")
