"""Putting a number of ranks on levels: whole nodes, and racks that are evenly filled."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from foretell.hardware.cluster import Level

UNBOUNDED = 2**40
"""The size of an outermost level that grows as needed."""


def packed(levels: Sequence[Level], ranks: int) -> tuple[Level, ...] | None:
    """The levels that `ranks` ranks take, innermost first; None where they do not fill them.

    Nodes are filled whole. Above the node the units (racks) may be partly used but equally: 32
    nodes take two racks of 17 as 16 + 16, since schedulers and trainers keep groups regular.
    """
    taken: list[Level] = []
    strict = True  # up to the node
    left = ranks
    for level in levels:
        outermost = level is levels[-1]
        size = left if left <= level.size else level.size if strict else _even(left, level.size)
        if size == 0 or left % size or (outermost and left != size):
            return None
        taken.append(msgspec.structs.replace(level, size=size))
        left //= size
        strict = strict and level.name != "node"
        if left == 1 and not strict:
            break
    return tuple(taken) if left == 1 else None


def _even(units: int, capacity: int) -> int:
    """The most units a rack can hold (at most `capacity`, at least half of it) with all racks equal; 0 if none."""
    fewest = -(-units // capacity)
    for racks in range(fewest, 2 * fewest + 1):
        if units % racks == 0:
            return units // racks
    return 0


def neighbours(levels: Sequence[Level], ranks: int) -> list[int]:
    """The nearest rank counts below and above that fill the levels."""
    most = math.prod(level.size for level in levels)
    node = math.prod(level.size for level in levels[: [level.name for level in levels].index("node") + 1])
    reach = 2 * node * max(1, *(level.size for level in levels if level.size < UNBOUNDED))
    below = next((n for n in range(min(ranks - 1, most), 0, -1) if packed(levels, n)), 0)
    above = next((n for n in range(ranks + 1, min(ranks + reach, most) + 1) if packed(levels, n)), 0)
    return [n for n in (below, above) if n]
