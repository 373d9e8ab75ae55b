"""How much longer kernels take while other cores are busy as well: cores share units, caches and memory."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from foretell.cost.samples import Calibration
from foretell.hardware.measured import Surface
from foretell.model.autocast import PRODUCTS

PRODUCT, COPY = "crowded product", "crowded copy"
"""Figures of a calibration."""

HELD_UP: Final = "held up"
"""And another: seconds by the wall's clock over those that a computing thread had its core."""

LAST: Final = "last"
"""And what the slowest of some ranks takes over what they take in the mean."""

MOVED: Final = 2
"""Bytes that a copy of a byte moves: it is read, and written."""


class CoreContention(NamedTuple):
    """So many ranks at once. Products have one figure; what moves data goes by how much it is: what a core's own cache
    has room for, nobody else slows down."""

    product: float
    copies: tuple[tuple[float, float], ...]  # log2 of bytes that are moved, and how many times as long it takes

    @classmethod
    def of(cls, found: Calibration, ranks: int) -> CoreContention:
        sizes = sorted({about.bytes for about in found.figures(COPY)}) or [0]
        copies = [(math.log2(max(1, MOVED * size)), _times(found, ranks, COPY, size)) for size in sizes]
        return cls(_times(found, ranks, PRODUCT), tuple(copies))

    def around(self, kind: str, surface: Surface) -> Surface:
        """What was measured of a kind of kernel on a core alone, as it is in the crowd."""
        if kind.split()[0] in PRODUCTS:
            return surface.slower(self.product)
        return Surface(tuple((work, size, log + math.log(self.copied(size))) for work, size, log in surface.points))

    def copied(self, size: float) -> float:
        """How many times as long it takes to move so many bytes (log2): between the sizes that were tried, by straight
        line."""
        low, first = max((one for one in self.copies if one[0] <= size), default=self.copies[0])
        high, second = min((one for one in self.copies if one[0] >= size), default=self.copies[-1])
        return first + (second - first) * (size - low) / (high - low) if high > low else first


def _times(found: Calibration, ranks: int, name: str, size: int = 0) -> float:
    """Nobody gets slower when others stop: where more ranks were less slow, something else had disturbed the fewer."""
    more = [about.ranks for about in found.figures(name) if about.bytes == size and about.ranks > ranks]
    return max(1.0, min(found.among(name, count, alone=1.0, size=size) for count in (ranks, *more)))


def held_up_by_others(found: Calibration, ranks: int) -> float:
    """How many times as long a thread takes by the wall's clock as it has its core, with so many ranks busy at once.

    What else runs on the machine, and whoever shares its processors beneath a virtual one, takes the rest.
    """
    return max(1.0, found.among(HELD_UP, ranks, alone=1.0))
