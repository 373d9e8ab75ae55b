"""Examples of several lengths in rows of one length: what is padded, and what does work.

A trainer puts examples into rows of a rectangle. Padded, a row is one example: as long as the longest of its
micro-batch, or as the longest that there may be. Packed, a row is as many examples as go in whole (best fit, the
longest first: Ding et al. 2024, arXiv 2404.10830), or the examples one after the other are cut where a row ends.
"""

from __future__ import annotations

import bisect
import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from foretell.errors import BadInput
from foretell.files import read_text

PADDINGS: Final = ("longest", "maximum", "packed", "cut")
"""One example a row, as long as the longest of the micro-batch, or all as long as the longest row; examples packed into
rows, whole, or one after the other and cut at the end of a row."""

DRAWN: Final = 2048
"""Lengths that stand for a distribution: the middles of as many equal shares of it."""

DRAWS: Final = 1 << 18
"""Micro-batches that are drawn where ranks with micro-batches of their own wait for each other at the end of a step."""

MOST: Final = 1 << 24
"""Tokens of an example, at most: more is a slip."""

FORM: Final = "a file of one length a line, or MEAN,MAXIMUM in tokens: --lengths 600,2048"


class ExampleLengths(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long examples are, and how they become rows."""

    counts: tuple[tuple[int, int], ...]  # tokens, and how many examples have so many; the shortest first
    padding: str = "longest"
    counted: bool = False  # all examples of a data set, not a distribution that stands for them
    most: int = 0  # tokens that an example of such a distribution may have

    def __post_init__(self) -> None:
        if self.padding not in PADDINGS:
            raise BadInput(f"padding {self.padding!r}", where="--padding", fix=" | ".join(PADDINGS))

    @property
    def examples(self) -> int:
        return sum(count for _, count in self.counts)

    @property
    def longest(self) -> int:
        return max(self.most, self.counts[-1][0])

    @property
    def mean(self) -> float:
        return sum(length * count for length, count in self.counts) / self.examples

    def within(self, row: int) -> ExampleLengths:
        """Those of examples that are cut off at the end of a row."""
        kept: Counter[int] = Counter()
        for length, count in self.counts:
            kept[min(length, row)] += count
        return msgspec.structs.replace(self, counts=tuple(sorted(kept.items())), most=min(self.most, row))

    def beyond(self, row: int) -> float:
        """Share of examples that are longer than a row."""
        return sum(count for length, count in self.counts if length > row) / self.examples

    def per_row(self, row: int) -> float:
        """Examples of a row of so many tokens, in the mean."""
        if self.padding == "packed":
            return self.examples / packed_rows(self.within(row).counts, row)
        return row / self.mean if self.padding == "cut" else 1.0

    def tokens(self, row: int) -> float:
        """Of an example, that are trained on: the end of one that is longer than a row is lost, if it is not cut."""
        return self.mean if self.padding == "cut" else self.within(row).mean

    def mean_of_longest(self, samples: int, of: Callable[[int], float]) -> float:
        """What something that grows with the longest of so many examples is in the mean, drawn at random."""
        found, below, before = 0.0, 0, 0.0
        for length, count in self.counts:
            below += count
            share = (below / self.examples) ** samples
            found, before = found + (share - before) * of(length), share
        return found

    def mean_of_slowest(self, samples: int, many: int, ranks: int, of: Callable[[int], float]) -> float:
        """The mean time of a micro-batch where `ranks` take `many` of them, each alone, and then wait for the slowest.

        The lengths are drawn, always the same ones.
        """
        import numpy

        lengths, counts = zip(*self.counts, strict=True)
        shares = numpy.cumsum(counts) / self.examples
        seconds = numpy.array([of(length) for length in lengths])
        steps = max(64, DRAWS // (ranks * many))
        longest = numpy.random.default_rng(0).random((steps, ranks, many)) ** (1 / samples)
        at = numpy.minimum(numpy.searchsorted(shares, longest), len(lengths) - 1)
        return float(seconds[at].mean(axis=2).max(axis=1).mean())


def packed_rows(counts: Sequence[tuple[int, int]], row: int) -> int:
    """Rows for examples that are packed whole: the longest first, each where least room is left that is enough.

    The row that has least stays the one that has least until no more go in, so that it is filled at once.
    """
    free: dict[int, int] = {}  # tokens that are free in a row: rows with so many
    order: list[int] = []  # these tokens, sorted
    rows = 0
    for length, count in sorted(counts, reverse=True):
        left = count
        while left:
            at = bisect.bisect_left(order, length)
            room = order.pop(at) if at < len(order) else row
            each = room // length
            some = free.pop(room, 0)
            if not some:
                some = -(-left // each)
                rows += some
            full = min(some, left // each)
            last = left - full * each if full < some else 0  # the row that the last of them do not fill
            left -= full * each + last
            untouched = some - full - (last > 0)
            for rest, more in ((room - each * length, full), (room - last * length, last > 0), (room, untouched)):
                if rest and more:
                    if rest not in free:
                        bisect.insort(order, rest)
                    free[rest] = free.get(rest, 0) + more
    return rows


# what a person says


def read_lengths(text: str, padding: str = "longest") -> ExampleLengths:
    """Lengths of a file, or those of a distribution with a mean and a maximum."""
    mean, comma, most = text.partition(",")
    if comma and not Path(text).exists():
        about, end = _number(mean), _number(most)
        return ExampleLengths(counts=_distributed(about, end), padding=padding, most=round(end))
    found = Counter(_length(line, f"{text}, line {at}") for at, line in _lines(text))
    if not found:
        raise BadInput("no length is in it", where=text, fix=FORM)
    return ExampleLengths(counts=tuple(sorted(found.items())), padding=padding, counted=True)


def _lines(file: str) -> list[tuple[int, str]]:
    content = read_text(Path(file), "file of lengths", fix=FORM)
    return [(at, line.strip()) for at, line in enumerate(content.splitlines(), 1) if line.strip()]


def _length(line: str, where: str) -> int:
    """A number, or the `length` or `input_ids` of a JSON object."""
    try:
        said: Any = json.loads(line)
    except (ValueError, RecursionError):
        said = None
    if isinstance(said, dict):
        about = cast("dict[str, Any]", said)
        ids = about.get("input_ids")
        said = len(cast("list[Any]", ids)) if isinstance(ids, list) else about.get("length")
    if not isinstance(said, int) or isinstance(said, bool) or not 0 < said <= MOST:
        shown = line if len(line) < 40 else line[:40] + "..."
        fix = f'a whole number from 1 to {MOST:,}, {{"length": 612}} or {{"input_ids": [...]}}'
        raise BadInput(f"{shown!r} is no length", where=where, fix=fix)
    return said


def _number(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 1 <= found <= MOST:
        raise BadInput(f"{text!r} is no number of tokens", where="--lengths", fix=FORM)
    return found


def _distributed(mean: float, most: float) -> tuple[tuple[int, int], ...]:
    """Of all distributions up to a maximum that have this mean the one that says nothing else (of most entropy).

    Its density is an exponential, which ends at the maximum: that falls where the mean is below the middle, and rises
    where it is above.
    """
    if mean > most:
        raise BadInput(f"a mean of {mean:g} above a maximum of {most:g}", where="--lengths", fix=FORM)
    share = min(mean, most - mean) / most
    if mean == most:
        return ((round(mean), DRAWN),)
    rate = _rate(share)
    middles = [(at + 0.5) / DRAWN for at in range(DRAWN)]
    parts = middles if rate <= LEAST else [-math.log1p(one * math.expm1(-rate)) / rate for one in middles]
    counted = Counter(max(1, round(most * (one if mean <= most / 2 else 1 - one))) for one in parts)
    return tuple(sorted(counted.items()))


LEAST: Final = 1e-3
"""Of the exponential below, with which it is level."""


def _rate(share: float) -> float:
    """Of the exponential between 0 and 1 whose mean is this share, below a half."""
    low, high = LEAST, 2 / share
    if share >= 0.5 - LEAST / 12:
        return low
    for _ in range(100):
        middle = (low + high) / 2
        mean = 1 / middle - (1 / math.expm1(middle) if middle < 700 else 0.0)
        low, high = (middle, high) if mean > share else (low, middle)
    return low
