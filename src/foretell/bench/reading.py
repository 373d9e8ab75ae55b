"""What rows say together: means over seeds, speed-ups, and whether engines that should learn the same do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import mean, median
from typing import TypeAlias

import msgspec

from foretell.bench.row import Row

FIRST = 5
"""Losses that are compared: later ones drift apart by rounding."""

REFERENCE = "ddp"
"""The engine that others are compared with, where it ran."""


def one_rank(engine: str, alone: Mapping[str, float]) -> float | None:
    """Seconds of an epoch on one rank that an engine's speed-up is over, of those that are known by engine.

    Its own, or else the reference's, or else the fastest there.
    """
    own = alone.get(engine) or alone.get(REFERENCE)
    return own or min(alone.values(), default=None)


Groups: TypeAlias = dict[tuple[str, str, str, int], list[Row]]
"""Rows that differ in nothing but the seed: by pair, conditions, engine and ranks."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """All seeds of one engine, pair and number of ranks, under the same conditions."""

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
    target_seconds: float | None  # the mean over seeds; None where one of them did not reach it
    reached: int  # seeds that reached the target
    error: float | None  # of the predicted step
    disagreement: float | None  # of the first losses with the reference's, as a share; None: not to be compared


def lines(rows: Iterable[Row]) -> list[Line]:
    """One for each engine, pair, number of ranks and conditions that ran."""
    groups: Groups = {}
    for row in rows:
        if row.ok:
            groups.setdefault((row.pair, row.conditions, row.engine, row.ranks), []).append(row)
    return [_line(group, groups) for _, group in sorted(groups.items())]


def _line(group: list[Row], groups: Groups) -> Line:
    one = group[0]
    epoch = epoch_seconds(group)
    alike = (one.pair, one.conditions)
    alone = {key[2]: epoch_seconds(rows) for key, rows in groups.items() if key[:2] == alike and key[3] == 1}
    base = one_rank(one.engine, alone)
    speed = base / epoch if base and epoch else None
    last = [row.curve[-1] for row in group if row.curve]
    metrics = [point.metric for point in last if point.metric is not None]
    times = [row.target_seconds for row in group]
    reached = [seconds for seconds in times if seconds is not None]
    errors = [row.predicted.error for row in group if row.predicted is not None]
    return Line(
        pair=one.pair,
        conditions=one.conditions,
        engine=one.engine,
        title=one.title,
        ranks=one.ranks,
        seeds=len(group),
        epoch_seconds=epoch,
        samples_per_second=median(row.samples_per_second for row in group),
        speed_up=speed,
        efficiency=speed / one.ranks if speed is not None else None,
        communication_share=median(row.communication_share for row in group),
        memory_bytes=median(row.memory_bytes for row in group),
        metric=(min(metrics), max(metrics)) if metrics else None,
        loss=mean(point.loss for point in last) if last else None,
        target_seconds=mean(reached) if reached and len(reached) == len(group) else None,
        reached=len(reached),
        error=median(errors) if errors else None,
        disagreement=_disagreement(group, groups.get((*alike, REFERENCE, one.ranks), [])),
    )


def epoch_seconds(rows: Iterable[Row]) -> float:
    """The median over seeds."""
    return median(row.epoch_seconds for row in rows)


def _disagreement(group: Sequence[Row], reference: Sequence[Row]) -> float | None:
    """The largest difference of a first loss from the reference's of the same seed and batch, as a share of it."""
    known = {(row.seed, row.batch): row for row in reference}
    found = [
        difference(row, known[row.seed, row.batch])
        for row in group
        if row.synchronous and (row.seed, row.batch) in known
    ]
    return max(found, default=None)


def difference(one: Row, other: Row) -> float:
    """Of the first losses of two rows."""
    pairs = zip(one.losses[:FIRST], other.losses[:FIRST], strict=False)
    return max((abs(mine - theirs) / abs(theirs) for mine, theirs in pairs), default=float("inf"))
