"""From which size on one algorithm is faster than another: where their formulas cross, and where times do."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations, pairwise

import msgspec

from foretell.hardware.cluster import Cluster
from foretell.lab.bench import CollectiveCase
from foretell.lab.formula import NO_SOFTWARE, WIDTH, Software, formula
from foretell.lab.measure import KINDS, CollectiveRow
from foretell.runtime.collectives import chosen

SMALLEST, LARGEST = 1 << 12, 1 << 23
"""Bytes of tensors among which a crossover is looked for."""

AROUND = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Times the size of a crossover, at which both algorithms are timed."""

ALIKE = 0.05
"""Two algorithms whose formulas differ by no more at the ends of these sizes run side by side: formulas are right to
five in a hundred at best, and where such two cross is not known."""


class Crossover(msgspec.Struct, frozen=True, kw_only=True):
    """Two algorithms that change places."""

    kind: str
    below: str  # the faster one for smaller tensors
    above: str
    formula: float  # bytes
    measured: float | None = None  # bytes; none where one of them was faster at all sizes that were timed

    @property
    def error(self) -> float | None:
        """Formula less measured, as a share of what was measured."""
        return self.formula / self.measured - 1 if self.measured else None


def expected(
    cluster: Cluster, algorithms: Sequence[str], kinds: Iterable[str] = KINDS, software: Software = NO_SOFTWARE
) -> list[Crossover]:
    """Every pair of algorithms that change places, by their formulas."""
    found: list[Crossover] = []
    for kind in kinds:
        able = [text for text in algorithms if chosen(text).does(kind)]
        found += [one for pair in combinations(able, 2) for one in _crossing(kind, *pair, cluster, software)]
    return found


def _crossing(kind: str, one: str, other: str, cluster: Cluster, software: Software) -> Iterator[Crossover]:
    def lead(size: float) -> float:
        """By how much the first one is slower; below zero where it is faster."""
        first, second = (formula(chosen(text), kind, round(size), cluster, software) for text in (one, other))
        return math.log(first / second)

    ends = lead(SMALLEST), lead(LARGEST)
    if ends[0] * ends[1] >= 0:
        return
    size = _root(lead, SMALLEST, LARGEST)
    if min(abs(lead(AROUND[0] * size)), abs(lead(AROUND[-1] * size))) > ALIKE:
        below, above = (one, other) if ends[0] < 0 else (other, one)
        yield Crossover(kind=kind, below=below, above=above, formula=size)


def _root(lead: Callable[[float], float], low: float, high: float) -> float:
    """Where a function that changes its sign between two sizes does so; to a thousandth."""
    rises = lead(high) > 0
    while high > 1.001 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if (lead(middle) > 0) == rises else (middle, high)
    return math.sqrt(low * high)


def cases(found: Iterable[Crossover], hosts: int, repeats: int) -> list[CollectiveCase]:
    """What has to be timed: both algorithms around each crossover; what several need, once."""
    wanted = {
        (text, one.kind, size): None for one in found for text in (one.below, one.above) for size in _sizes(one, hosts)
    }
    return [CollectiveCase(*case, repeats) for case in wanted]


def _sizes(one: Crossover, hosts: int) -> list[int]:
    unit = WIDTH * hosts
    return [max(1, round(times * one.formula / unit)) * unit for times in AROUND]


def _around(times: float) -> bool:
    return AROUND[0] / 1.5 < times < AROUND[-1] * 1.5


def measured(found: Iterable[Crossover], rows: Sequence[CollectiveRow]) -> list[Crossover]:
    """The crossovers with the sizes at which the times of these rows, all of one network, cross."""
    times = {(row.algorithm, row.kind, row.size): row.seconds for row in rows}
    return [msgspec.structs.replace(one, measured=_seen(one, times)) for one in found]


def _seen(one: Crossover, times: dict[tuple[str, str, int], float]) -> float | None:
    """The size where the one that is faster below becomes the slower one, between two that were timed around it."""
    points = sorted(
        (math.log(size), math.log(seconds / times[one.above, kind, size]))
        for (text, kind, size), seconds in times.items()
        if (text, kind) == (one.below, one.kind) and (one.above, kind, size) in times and _around(size / one.formula)
    )
    for (left, before), (right, after) in pairwise(points):
        if before < 0 <= after:
            return math.exp(left + (right - left) * before / (before - after))
    return None
