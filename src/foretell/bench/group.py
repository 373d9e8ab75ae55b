"""Rows of one model on one kind of device, by engine and number of ranks: what is compared with one another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median, median_low
from typing import Final, NamedTuple

from foretell.bench.row import BenchRow, LearningPoint
from foretell.hardware import catalog, members
from foretell.plan.plan import Plan
from foretell.plan.text import parse

DATA: Final = "data"
SHARDED: Final = "sharded data"
INTRA: Final = "intra-layer"
PIPELINE: Final = "pipeline"
HYBRID: Final = "hybrid"
OTHER: Final = "other"


def family(row: BenchRow) -> str:
    """Which way of splitting a row's plan takes, by the axes that have more than one rank or are all that there is."""
    if not row.plan:
        return OTHER
    plan = parse(row.plan)
    kinds = {_family(axis.word, plan) for axis in plan.axes} or {DATA}
    if len(kinds) > 1:
        return HYBRID
    kind = kinds.pop()
    return OTHER if kind == DATA and not row.synchronous else kind  # weights that are averaged, not gradients


def _family(word: str, plan: Plan) -> str:
    if word == "dp":
        return SHARDED if getattr(plan.axis("dp"), "storage", "replicated") != "replicated" else DATA
    if word in ("tp", "cp", "spatial", "filter", "channel"):
        return INTRA
    return PIPELINE if word == "pp" else OTHER


REFERENCE: Final = "ddp"
"""The engine that others are compared with, where it ran."""


def one_rank(engine: str, alone: Mapping[str, float]) -> float | None:
    """Seconds of an epoch on one rank that an engine's speed-up is over, of those that are known by engine.

    Its own, or else the reference's, or else the fastest there.
    """
    own = alone.get(engine) or alone.get(REFERENCE)
    return own or min(alone.values(), default=None)


class MeanLook(NamedTuple):
    """What all seeds had learnt after as many steps: means over seeds."""

    epoch: float
    seconds: float  # of training
    loss: float
    metric: float | None

    @property
    def score(self) -> float:
        """More is better: the share of right answers, or where there is none the loss."""
        return -self.loss if self.metric is None else self.metric

    @property
    def told(self) -> str:
        return f"a loss of {self.loss:.3g}" if self.metric is None else f"{self.metric:.1%} right"

    @property
    def when(self) -> str:
        return f"after {self.seconds:.3g} s" if self.seconds < 120 else f"after {self.seconds / 60:.3g} minutes"


def _look(points: Sequence[LearningPoint]) -> MeanLook:
    metrics = [point.metric for point in points if point.metric is not None]
    return MeanLook(
        fmean(point.epoch for point in points),
        fmean(point.seconds for point in points),
        fmean(point.loss for point in points),
        fmean(metrics) if len(metrics) == len(points) else None,
    )


class EngineScaling(NamedTuple):
    """One engine over numbers of ranks: a line of a chart."""

    engine: str
    rows: dict[int, BenchRow]  # by ranks, in order; of several seeds the one in the middle
    family: str  # on more than one rank
    seeds: dict[int, tuple[BenchRow, ...]]  # all rows, by ranks

    @property
    def title(self) -> str:
        return next(iter(self.rows.values())).title or self.engine

    @property
    def synchronous(self) -> bool:
        return next(iter(self.rows.values())).synchronous

    def epoch_seconds(self, ranks: int) -> float:
        """The median over seeds."""
        return median(row.epoch_seconds for row in self.seeds[ranks])

    def seeds_on(self, ranks: int) -> frozenset[int]:
        return frozenset(row.seed for row in self.seeds[ranks])

    def learnt(self, ranks: int, seeds: frozenset[int] | None = None) -> list[MeanLook]:
        """The looks of these seeds or of all, those after as many steps together; of seeds cut short as far as they
        go."""
        curves = [row.curve for row in self.seeds[ranks] if seeds is None or row.seed in seeds]
        return [_look(points) for points in zip(*curves, strict=False)]

    def speedup(self, ranks: int) -> float:
        """Over its own one rank."""
        return self.epoch_seconds(1) / self.epoch_seconds(ranks)

    def efficiency(self, ranks: int) -> float:
        return self.speedup(ranks) / ranks


class BenchGroup(NamedTuple):
    """All engines on one model and device, under the same conditions."""

    device: str
    pair: str
    node: int  # ranks that share a node; 0: not known
    lines: tuple[EngineScaling, ...]
    part: str = ""  # of the engines, where it has not all of them
    conditions: str = ""  # other than the pair's

    @property
    def name(self) -> str:
        return f"{self.pair} on {self.device}{f' ({self.conditions})' if self.conditions else ''}"

    @property
    def told_conditions(self) -> str:
        """The pair, and how it was asked otherwise than it says."""
        return f"{self.pair}, {self.conditions}" if self.conditions else self.pair

    @property
    def key(self) -> tuple[str, str, str]:
        return self.device, self.pair, self.conditions

    @property
    def told(self) -> str:
        return f"{self.name}, {self.part}" if self.part else self.name

    def speed_up(self, line: EngineScaling, ranks: int) -> float | None:
        """Over one rank; None: nobody was alone, or there was no epoch."""
        base = one_rank(line.engine, {one.engine: one.epoch_seconds(1) for one in self.lines if 1 in one.rows})
        own = line.epoch_seconds(ranks)
        return base / own if base and own else None

    def reference(self, ranks: int) -> BenchRow | None:
        """The row of the reference on so many ranks."""
        return next((one.rows[ranks] for one in self.lines if one.engine == REFERENCE and ranks in one.rows), None)

    def of(self, *families: str) -> tuple[EngineScaling, ...]:
        return tuple(line for line in self.lines if line.family in families)

    def within(self, *names: str) -> tuple[EngineScaling, ...]:
        """Engines whose names begin so."""
        return tuple(line for line in self.lines if line.engine.startswith(names))


def groups(rows: Iterable[BenchRow]) -> tuple[BenchGroup, ...]:
    """Rows that came to something, sorted out; those that did not are told elsewhere."""
    found: dict[tuple[str, str, str], dict[str, dict[int, list[BenchRow]]]] = {}
    for row in rows:
        if row.ok and row.step_seconds > 0:
            engines = found.setdefault((row.device, row.pair, row.conditions), {})
            engines.setdefault(row.engine, {}).setdefault(row.ranks, []).append(row)
    return tuple(
        BenchGroup(
            device,
            pair,
            _node(device, engines),
            tuple(_line(name, counts) for name, counts in engines.items()),
            conditions=conditions,
        )
        for (device, pair, conditions), engines in found.items()
    )


def _line(engine: str, counts: dict[int, list[BenchRow]]) -> EngineScaling:
    rows = {ranks: _middle(counts[ranks]) for ranks in sorted(counts)}
    return EngineScaling(
        engine.replace("_", "-"), rows, family(rows[max(rows)]), {ranks: tuple(counts[ranks]) for ranks in rows}
    )


def _middle(rows: Sequence[BenchRow]) -> BenchRow:
    """Of several seeds the one whose step is in the middle."""
    middle = median_low(row.step_seconds for row in rows)
    return next(row for row in rows if row.step_seconds == middle)


def _node(device: str, engines: dict[str, dict[int, list[BenchRow]]]) -> int:
    """Ranks of a node: as rows were measured, or as a cluster is known to have them."""
    measured = max(row.node for counts in engines.values() for rows in counts.values() for row in rows)
    return measured or node_ranks(device)


def node_ranks(device: str) -> int:
    """Ranks of a node, where the device is a cluster that is known by name; 0: not known."""
    return catalog.cluster(device).ranks_per_node if device in members.names("clusters") else 0


def alike(lines: Sequence[EngineScaling]) -> tuple[list[EngineScaling], frozenset[int]]:
    """Lines whose learning may be compared, on the most ranks of each, with the seeds that all of them have: another
    seed is another question. Where some have several seeds, those of one are left out."""
    seeds = {line.engine: line.seeds_on(max(line.rows)) for line in lines}
    least = min(2, max(map(len, seeds.values()), default=0))
    chosen = [line for line in lines if len(seeds[line.engine]) >= least]
    common = frozenset[int].intersection(*(seeds[line.engine] for line in chosen)) if chosen else frozenset[int]()
    return chosen, common


def shared(lines: Sequence[EngineScaling]) -> list[int]:
    """Numbers of ranks that all of them have."""
    if not lines:
        return []
    return sorted(set(lines[0].rows).intersection(*(line.rows for line in lines[1:])))
