"""All plans that a search priced, as columns: sorted, picked, and written as a table.

A plan is kept as four numbers and becomes a text when somebody asks for it. Plans that take the same time and memory
are told in one order, whatever the order they were found in: the plainest first.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from os import PathLike
from typing import Any

import msgspec
import numpy

from foretell.plan.plan import Plan
from foretell.plan.text import parse
from foretell.records.tables import pyarrow, write_table

COLUMNS = ("plan", "step_seconds", "memory_bytes", "fits")


class Candidate(msgspec.Struct, frozen=True, dict=True):
    """One plan, priced: its text, as it is told, and the plan itself as its `value`."""

    plan: str
    step_seconds: float
    memory_bytes: float

    @classmethod
    def of(cls, plan: Plan, step_seconds: float, memory_bytes: float) -> Candidate:
        """That of a plan, which is kept: nobody inside reads its text again."""
        made = cls(str(plan), step_seconds, memory_bytes)
        vars(made)["value"] = plan
        return made

    @functools.cached_property
    def value(self) -> Plan:
        """The plan; of a candidate that came as text, read when it is asked for."""
        return parse(self.plan)


class PricedPlans:
    """Seconds and bytes of every plan, with a way to name each."""

    def __init__(self, seconds: Any, memory: Any, capacity: float, named: Callable[[int], Plan]) -> None:
        self.seconds, self.memory, self.capacity = seconds, memory, capacity
        self.fits = memory <= capacity
        self._named = named

    def __len__(self) -> int:
        return len(self.seconds)

    def __getitem__(self, at: int) -> Candidate:
        return Candidate.of(self._named(at), float(self.seconds[at]), float(self.memory[at]))

    def fastest(self, count: int) -> tuple[Candidate, ...]:
        """Of those that fit; of two that are as fast the one that takes less memory comes first."""
        found = self._first(self._by_time if self.fits.any() else (), count)
        return tuple(sorted(found, key=lambda one: (one.step_seconds, one.memory_bytes, plainness(one)))[:count])

    def fastest_of(self, wanted: Callable[[Plan], bool], count: int) -> list[Candidate]:
        """The same of those that are wanted."""
        found = (int(at) for at in (self._by_time if self.fits.any() else ()) if wanted(self._named(int(at))))
        return [self[at] for at in itertools.islice(found, count)]

    def smallest(self, count: int) -> tuple[Candidate, ...]:
        """Those that need the least memory, whether they fit or not; the faster of two first."""
        if count < len(self):
            most = numpy.partition(self.memory, count - 1)[count - 1]
            few = numpy.flatnonzero(self.memory <= most)
        else:
            few = numpy.arange(len(self))
        found = self._first(few[numpy.lexsort((self.seconds[few], self.memory[few]))], count)
        return tuple(sorted(found, key=lambda one: (one.memory_bytes, one.step_seconds, plainness(one)))[:count])

    def front(self) -> tuple[Candidate, ...]:
        """From the fastest on, each plan that needs less memory than all before; of those that fit, if some do."""
        order = self._by_time
        if not len(order):
            return ()
        least = numpy.minimum.accumulate(self.memory[order])
        better = [0, *(numpy.flatnonzero(least[1:] < least[:-1]) + 1)]
        return tuple(self._plainest(order, int(at)) for at in better)

    def rows(self) -> Iterator[tuple[str, float, float, bool]]:
        """Every plan, column by column as in `COLUMNS`; those that have parts in common lie together."""
        for at in range(len(self)):
            one = self[at]
            yield one.plan, one.step_seconds, one.memory_bytes, bool(self.fits[at])

    def write(self, file: str | PathLike[str]) -> None:
        """Write all plans to a .csv, or to a .parquet or .arrow file, which needs the extra `table`."""
        write_table(file, COLUMNS, self.rows, self.arrow)

    def arrow(self) -> Any:
        """All plans as a pyarrow.Table."""
        texts = [str(self._named(at)) for at in range(len(self))]
        return pyarrow().table(dict(zip(COLUMNS, (texts, self.seconds, self.memory, self.fits), strict=True)))

    # order

    @functools.cached_property
    def _by_time(self) -> Any:
        """Those that fit; all, if none does."""
        own = numpy.flatnonzero(self.fits) if self.fits.any() else numpy.arange(len(self))
        return own[numpy.lexsort((self.memory[own], self.seconds[own]))]

    def _first(self, order: Any, count: int) -> list[Candidate]:
        """The first ones, and all that equal the last of them."""
        end = min(count, len(order))
        while 0 < end < len(order) and self._equal(order[end - 1], order[end]):
            end += 1
        return [self[int(at)] for at in order[:end]]

    def _plainest(self, order: Any, at: int) -> Candidate:
        """Of the plans that equal the one at this place and come after it."""
        end = at + 1
        while end < len(order) and self._equal(order[at], order[end]):
            end += 1
        return min((self[int(one)] for one in order[at:end]), key=plainness)

    def _equal(self, one: Any, other: Any) -> bool:
        return bool(self.seconds[one] == self.seconds[other] and self.memory[one] == self.memory[other])


def plainness(one: Candidate) -> tuple[int, int, str]:
    """What comes first of plans that are as good: fewer words, then fewer options, then the one first by its text."""
    return len(one.plan.split()), sum(one.plan.count(mark) for mark in ":,[/"), one.plan
