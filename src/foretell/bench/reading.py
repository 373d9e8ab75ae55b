"""What rows say together: means over seeds, speed-ups, and whether engines that should learn the same do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, median
from typing import NamedTuple

import msgspec

from foretell.bench.group import REFERENCE, BenchGroup, EngineScaling, groups
from foretell.bench.row import BenchRow

FIRST = 5
"""Losses that are compared: later ones drift apart by rounding."""


class Noise(NamedTuple):
    """By how much the longest step of an engine's seeds exceeds the shortest, as a share: no seed changes the work."""

    middle: float
    most: float
    lines: int  # that have several seeds

    @property
    def told(self) -> str:
        return (
            f"Steps of one engine differ between its seeds by {self.middle:.0%} in the middle of {self.lines} lines "
            f"and by {self.most:.0%} at most: what differs less is no finding."
        )


class ReadingLine(msgspec.Struct, frozen=True, kw_only=True):
    """All seeds of one engine, pair and number of ranks, under the same conditions: a line of a table."""

    pair: str
    conditions: str  # other than the pair's
    engine: str
    title: str
    ranks: int
    seeds: int
    epoch_seconds: float  # the median over seeds, as what follows
    samples_per_second: float
    speed_up: float | None  # over one rank, see `one_rank`
    efficiency: float | None
    communication_share: float
    memory_bytes: float
    metric: tuple[float, float] | None  # at the last look: the worst and the best seed
    loss: float | None  # mean over seeds
    perplexity: float | None  # at the last look, the median over seeds; None: no sequences
    target_seconds: float | None  # the mean over seeds; None where one of them did not reach it
    reached: int  # seeds that reached the target
    error: float | None  # of the predicted step
    memory_error: float | None  # of the predicted memory
    disagreement: float | None  # of the first losses with the reference's, as a share; None: not to be compared


def lines(rows: Iterable[BenchRow]) -> list[ReadingLine]:
    """One for each engine, pair, number of ranks and conditions that ran."""
    found = [
        line_of(group, scaling, ranks) for group in groups(rows) for scaling in group.lines for ranks in scaling.rows
    ]
    return sorted(found, key=lambda line: (line.pair, line.conditions, line.engine, line.ranks))


def line_of(group: BenchGroup, scaling: EngineScaling, ranks: int) -> ReadingLine:
    rows, speed = scaling.seeds[ranks], group.speed_up(scaling, ranks)
    last = [row.curve[-1] for row in rows if row.curve]
    metrics = [point.metric for point in last if point.metric is not None]
    fluent = [point.perplexity for point in last if point.perplexity is not None]
    reached = [row.target_seconds for row in rows if row.target_seconds is not None]
    predicted = [row.predicted for row in rows if row.predicted is not None]
    memory = [one.memory_error for one in predicted if one.memory_error is not None]
    return ReadingLine(
        pair=group.pair,
        conditions=group.conditions,
        engine=scaling.engine,
        title=rows[0].title,
        ranks=ranks,
        seeds=len(rows),
        epoch_seconds=scaling.epoch_seconds(ranks),
        samples_per_second=median(row.samples_per_second for row in rows),
        speed_up=speed,
        efficiency=speed / ranks if speed is not None else None,
        communication_share=median(row.communication_share for row in rows),
        memory_bytes=median(row.memory_bytes for row in rows),
        metric=(min(metrics), max(metrics)) if metrics else None,
        loss=fmean(point.loss for point in last) if last else None,
        perplexity=median(fluent) if fluent else None,
        target_seconds=fmean(reached) if reached and len(reached) == len(rows) else None,
        reached=len(reached),
        error=median(one.error for one in predicted) if predicted else None,
        memory_error=median(memory) if memory else None,
        disagreement=_disagreement(rows, _reference(group, ranks)),
    )


def noise(rows: Iterable[BenchRow]) -> Noise | None:
    """What times of these rows are worth; None where every line has one seed."""
    seeds = [own for group in groups(rows) for line in group.lines for own in line.seeds.values() if len(own) > 1]
    steps = [[row.step_seconds for row in own] for own in seeds]
    found = [max(one) / min(one) - 1 for one in steps]
    return Noise(median(found), max(found), len(found)) if found else None


def _reference(group: BenchGroup, ranks: int) -> Sequence[BenchRow]:
    return next((one.seeds[ranks] for one in group.lines if one.engine == REFERENCE and ranks in one.rows), ())


def _disagreement(rows: Sequence[BenchRow], reference: Sequence[BenchRow]) -> float | None:
    """The largest difference of a first loss from the reference's of the same seed and batch, as a share of it."""
    known = {(row.seed, row.batch): row for row in reference}
    found = [
        difference(row, known[row.seed, row.batch])
        for row in rows
        if row.synchronous and (row.seed, row.batch) in known
    ]
    return max(found, default=None)


def difference(one: BenchRow, other: BenchRow) -> float:
    """Of the first losses of two rows."""
    pairs = zip(one.losses[:FIRST], other.losses[:FIRST], strict=False)
    return max((abs(mine - theirs) / abs(theirs) for mine, theirs in pairs), default=float("inf"))
