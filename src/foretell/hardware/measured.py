"""What was measured on a device or a link, as a correction of what formulas say of it.

A formula knows how the time of a kernel or a message goes with its sizes; a measurement knows the level that this
machine has. A `Surface` holds measured time over the formula's at the sizes that were timed, and gives the ratio at
any other sizes: that of the nearest measured ones.
"""

from __future__ import annotations

import functools
import math
from typing import Final, TypeAlias

import msgspec

from foretell.units import Quantity

Point: TypeAlias = tuple[float, float, float]
"""log2 of one size, log2 of another, log of measured over formula."""

REACH: Final = 0.25
"""Doublings, squared, within which measured points count alike: noise of single points is averaged out."""


class Surface(msgspec.Struct, frozen=True):
    """Measured time over the formula's, at two sizes each (flops and bytes, or bytes and ranks)."""

    points: tuple[Point, ...]

    def __hash__(self) -> int:
        return hash(self.points[:4])

    def factor(self, first: Quantity, second: Quantity) -> Quantity:
        """The ratio at these sizes; for arrays an array, each digit that of its size alone."""
        if isinstance(first, int | float) and isinstance(second, int | float):
            return self._one(float(first), float(second))
        import numpy

        pairs = numpy.broadcast(first, second)
        return numpy.array([self._one(float(x), float(y)) for x, y in pairs]).reshape(pairs.shape)

    def _one(self, first: float, second: float) -> float:
        return math.exp(_between(self.points, _log2(first), _log2(second)))

    def residuals(self) -> list[float]:
        """How far each point is from what the others say of it, as a factor's logarithm; empty with one point."""
        if len(self.points) == 1:
            return []
        found: list[float] = []
        for at, (x, y, log) in enumerate(self.points):
            others = self.points[:at] + self.points[at + 1 :]
            found.append(log - _between(others, x, y))
        return found

    def slower(self, factor: float) -> Surface:
        """The same where everything takes this many times as long."""
        return Surface(tuple((x, y, log + math.log(factor)) for x, y, log in self.points))


class UnderPower(msgspec.Struct, frozen=True):
    """How many times as long kernels take among others that keep the device at its limit of power, as alone."""

    ratios: dict[str, Surface]  # by what draws alike, and precision
    watts: dict[str, float]  # that the others would have drawn at full clocks, by the precision of products

    def __hash__(self) -> int:
        return hash(tuple(self.watts.items()))


def to_the(ratio: Quantity, share: Quantity) -> Quantity:
    """A share of a ratio: its power; for arrays each digit that of its numbers alone."""
    if isinstance(ratio, int | float) and isinstance(share, int | float):
        return math.pow(ratio, share)
    import numpy

    pairs = numpy.broadcast(ratio, share)
    return numpy.array([math.pow(float(x), float(y)) for x, y in pairs]).reshape(pairs.shape)


def _log2(size: float) -> float:
    return math.log2(max(size, 1.0))


@functools.lru_cache(maxsize=65536)
def _between(points: tuple[Point, ...], x: float, y: float) -> float:
    """The mean of the points, near ones first: weights fall with the fourth power of the distance (Shepard 1968)."""
    total = weights = 0.0
    for at, to, log in points:
        weight = ((at - x) ** 2 + (to - y) ** 2 + REACH) ** -2
        total += weight * log
        weights += weight
    return total / weights
