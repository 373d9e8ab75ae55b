"""Rows of one model on one kind of device, by engine and number of ranks: what is compared with one another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median_low
from typing import Final, NamedTuple

from foretell.bench.reading import epoch_seconds, one_rank
from foretell.bench.row import Row
from foretell.hardware import catalog, members
from foretell.plan.plan import Plan
from foretell.plan.text import parse

DATA: Final = "data"
SHARDED: Final = "sharded data"
INTRA: Final = "intra-layer"
PIPELINE: Final = "pipeline"
HYBRID: Final = "hybrid"
OTHER: Final = "other"


def family(row: Row) -> str:
    """Which way of splitting a row's plan takes, by the axes that have more than one rank or are all that there is."""
    if not row.plan:
        return OTHER
    plan = parse(row.plan)
    kinds = {_family(axis.word, plan) for axis in plan.axes}
    return kinds.pop() if len(kinds) == 1 else HYBRID if kinds else DATA


def _family(word: str, plan: Plan) -> str:
    if word == "dp":
        return SHARDED if getattr(plan.axis("dp"), "storage", "replicated") != "replicated" else DATA
    if word in ("tp", "cp", "spatial", "filter", "channel"):
        return INTRA
    return PIPELINE if word == "pp" else OTHER


class Line(NamedTuple):
    """One engine over numbers of ranks."""

    engine: str
    rows: dict[int, Row]  # by ranks, in order; of several seeds the one in the middle
    family: str  # on more than one rank
    seeds: dict[int, tuple[Row, ...]]  # all rows, by ranks

    @property
    def title(self) -> str:
        return next(iter(self.rows.values())).title or self.engine

    def epoch_seconds(self, ranks: int) -> float:
        """The median over seeds."""
        return epoch_seconds(self.seeds[ranks])

    def speedup(self, ranks: int) -> float:
        """Over its own one rank."""
        return self.epoch_seconds(1) / self.epoch_seconds(ranks)

    def efficiency(self, ranks: int) -> float:
        return self.speedup(ranks) / ranks

    @property
    def counts(self) -> list[int]:
        return list(self.rows)


class Group(NamedTuple):
    """All engines on one model and device, under the same conditions."""

    device: str
    pair: str
    node: int  # ranks that share a node; 0: not known
    lines: tuple[Line, ...]
    part: str = ""  # of the engines, where it has not all of them
    conditions: str = ""  # other than the pair's

    @property
    def name(self) -> str:
        return f"{self.pair} on {self.device}{f' ({self.conditions})' if self.conditions else ''}"

    @property
    def key(self) -> tuple[str, str, str]:
        return self.device, self.pair, self.conditions

    @property
    def told(self) -> str:
        return f"{self.name}, {self.part}" if self.part else self.name

    def speed_up(self, line: Line, ranks: int) -> float | None:
        """Over one rank; None: nobody was alone."""
        base = one_rank(line.engine, {one.engine: one.epoch_seconds(1) for one in self.lines if 1 in one.rows})
        return base / line.epoch_seconds(ranks) if base else None

    def of(self, *families: str) -> tuple[Line, ...]:
        return tuple(line for line in self.lines if line.family in families)

    def within(self, *names: str) -> tuple[Line, ...]:
        """Engines whose names begin so."""
        return tuple(line for line in self.lines if line.engine.startswith(names))


def groups(rows: Iterable[Row]) -> tuple[Group, ...]:
    """Rows that came to something, sorted out; those that did not are told elsewhere."""
    found: dict[tuple[str, str, str], dict[str, dict[int, list[Row]]]] = {}
    for row in rows:
        if row.ok and row.step_seconds > 0:
            engines = found.setdefault((row.device, row.pair, row.conditions), {})
            engines.setdefault(row.engine, {}).setdefault(row.ranks, []).append(row)
    return tuple(
        Group(
            device,
            pair,
            node_ranks(device),
            tuple(_line(name, counts) for name, counts in engines.items()),
            conditions=conditions,
        )
        for (device, pair, conditions), engines in found.items()
    )


def _line(engine: str, counts: dict[int, list[Row]]) -> Line:
    rows = {ranks: _middle(counts[ranks]) for ranks in sorted(counts)}
    return Line(engine, rows, family(rows[max(rows)]), {ranks: tuple(counts[ranks]) for ranks in rows})


def _middle(rows: Sequence[Row]) -> Row:
    """Of several seeds the one whose step is in the middle."""
    middle = median_low(row.step_seconds for row in rows)
    return next(row for row in rows if row.step_seconds == middle)


def node_ranks(device: str) -> int:
    """Ranks of a node, where the device is a cluster that is known by name; 0: not known."""
    return catalog.cluster(device).ranks_per_node if device in members.names("clusters") else 0


def shared(lines: Sequence[Line]) -> list[int]:
    """Numbers of ranks that all of them have."""
    if not lines:
        return []
    return sorted(set(lines[0].rows).intersection(*(line.rows for line in lines[1:])))
