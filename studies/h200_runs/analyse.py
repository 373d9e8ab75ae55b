"""Predict the runs of `run.py` and subtract: a line a run, the mean error by strategy, and how far runs lie apart.

python studies/h200_runs/analyse.py studies/h200_runs --calibration studies/h200_runs/calibration_before.json
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from foretell.cost import calibrated, measured_exchanges, weight_traffic
from foretell.cost.cpu_host_work import CpuHostWork
from foretell.cost.samples import MeasuredMachine
from foretell.errors import ForetellError
from foretell.oracle import calibrations
from foretell.plan.text import parse
from foretell.runtime.assignment import Assignment
from foretell.runtime.comparison import Comparison, compared
from foretell.runtime.measure import Measurement
from foretell.runtime.recording import cluster_of

COMPUTING = ("forward", "backward", "optimizer")

GONE = "tp"
"""The axis whose runs were on DTensor, each operator through Python. What runs now are collectives of our own."""

CAUSES: dict[str, tuple[Any, str, Any]] = {
    "code of the host that went cold": (calibrated, "cold_launches", lambda found: ()),
    "the slowest of the ranks": (calibrated, "slowest", lambda found, ranks: 1.0),
    "slices of full cores": (measured_exchanges, "_late", lambda ranks, found, busy: 0.0),
    "groups that talk at once": (measured_exchanges, "_at_once", lambda points, busy: points),
    "copies and sums for weights": (weight_traffic, "CpuHostWork", lambda prices: Idle()),
}
"""What the model knows of ranks that are cores, and what stands in for it where it is left out."""


class Idle(CpuHostWork):
    """Nothing is done for weights besides."""

    def __init__(self) -> None:
        self.any = False


class Row(NamedTuple):
    """One run, predicted and measured."""

    part: str
    assignment: Assignment
    found: Comparison
    quiet: float  # share of the computing phases that the ranks' own threads had their cores
    anchored: float = 0.0  # seconds that are predicted with one rank's run of the model as an anchor, phase by phase

    @property
    def ranks(self) -> int:
        return self.found.measured.ranks

    @property
    def strategy(self) -> str:
        """What the axes do, without numbers."""
        plan = parse(self.assignment.plan)
        words = [axis.word + (f":{said}" if (said := _variant(axis)) else "") for axis in plan.axes if axis.world > 1]
        return " ".join(words) or "one rank"


def _variant(axis: Any) -> str:
    said = getattr(axis, "storage", "")
    return "" if said in ("", "replicated") else str(said)


def lines(folder: Path) -> Iterator[dict[str, Any]]:
    for file in sorted(folder.glob("runs*.jsonl")):
        for line in file.read_text().splitlines():
            yield json.loads(line)


def row(line: dict[str, Any], calibration: str) -> Row:
    assignment = msgspec.convert(line["assignment"], Assignment)
    measured = msgspec.convert(line["measurement"], Measurement)
    cluster = cluster_of(msgspec.convert(line["machine"], MeasuredMachine))
    named = calibration if assignment.device == "cpu" else "none"
    found = compared(assignment, measured, line["place"], cluster, named)
    return Row(line["key"][0], assignment, found, _quiet(line))


def _quiet(line: dict[str, Any]) -> float:
    wall = sum(line["measurement"]["by_rank"].get(name, [0.0])[0] for name in COMPUTING)
    return sum(line["ranks"][0]["busy"].get(name, 0.0) for name in COMPUTING) / wall if wall else 1.0


def with_anchors(rows: list[Row]) -> list[Row]:
    """Every row with what is predicted when one core's run of the same model has been measured; a GPU ran alone."""
    cores = [one for one in rows if one.assignment.device == "cpu"]
    alone = {one.assignment.model: one.found for one in cores if one.ranks == 1}
    found = [alone.get(one.assignment.model) if one in cores else None for one in rows]
    return [one._replace(anchored=_anchored(one.found, anchor)) for one, anchor in zip(rows, found, strict=True)]


def _anchored(found: Comparison, alone: Comparison | None) -> float:
    step = found.predicted.step_seconds
    for name in COMPUTING if alone else ():
        said, measured = (side.breakdown.get(name, 0.0) for side in (alone.predicted, alone.measured))
        step += found.predicted.breakdown.get(name, 0.0) * (measured / said - 1) if said else 0.0
    return step


def tell(rows: list[Row]) -> None:
    names = {"ranks": 5, "measured": 11, "predicted": 11, "error": 8, "anchored": 9, "memory": 8, "own": 6}
    head = "".join(f"{name:>{width}}" for name, width in names.items())
    print(f"{'model':<10}{'plan':<24}{head}  worst phase")
    for one in rows:
        found = one.found
        name, share = worst(found)
        print(
            f"{one.assignment.model.partition(':')[0]:<10}{one.assignment.plan:<24}{one.ranks:>5}"
            f"{1e3 * found.measured.step_seconds:>8.1f} ms{1e3 * found.predicted.step_seconds:>8.1f} ms"
            f"{found.error.relative['step_seconds']:>+8.1%}{error_anchored(one):>+9.1%}"
            f"{found.error.relative['allocated']:>+8.1%}{one.quiet:>6.0%}"
            f"  {name} {share:+.0%}"
        )


def less_input(one: Row) -> float:
    """The error without the time to fetch samples, which is measured and not predicted."""
    sides = (one.found.predicted, one.found.measured)
    said, measured = (side.step_seconds - side.breakdown.get("input", 0.0) for side in sides)
    return said / measured - 1


def error_anchored(one: Row) -> float:
    return one.anchored / one.found.measured.step_seconds - 1


def worst(found: Comparison) -> tuple[str, float]:
    """The phase that is furthest off, as a share of the step."""
    name = max(found.error.breakdown, key=lambda key: abs(found.error.breakdown[key]))
    return name, found.error.breakdown[name] / found.measured.step_seconds


def summary(title: str, groups: dict[Any, list[Row]]) -> None:
    names = {"runs": 6, "mean error": 12, "bias": 8, "less input": 12, "anchored": 10, "bias ": 8, "memory": 8}
    print(f"\n{title:<24}" + "".join(f"{name.strip():>{width}}" for name, width in names.items()))
    for name, rows in groups.items():
        errors = [one.found.error.relative["step_seconds"] for one in rows]
        anchored = list(map(error_anchored, rows))
        memory = [one.found.error.relative["allocated"] for one in rows]
        print(
            f"{name!s:<24}{len(rows):>6}{statistics.mean(map(abs, errors)):>12.1%}"
            f"{statistics.mean(errors):>+8.1%}{statistics.mean(abs(less_input(one)) for one in rows):>12.1%}"
            f"{statistics.mean(map(abs, anchored)):>10.1%}"
            f"{statistics.mean(anchored):>+8.1%}{statistics.mean(map(abs, memory)):>8.1%}"
        )


def grouped(rows: Iterable[Row], by: Any) -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = defaultdict(list)
    for one in rows:
        found[by(one)].append(one)
    return dict(sorted(found.items(), key=str))


def noise(rows: Iterable[Row]) -> None:
    """How far two runs of the same lie apart."""
    pairs: dict[Any, list[float]] = defaultdict(list)
    for one in rows:
        pairs[one.assignment.model, one.assignment.plan, one.assignment.threads].append(one.found.measured.step_seconds)
    apart = [abs(a - b) / ((a + b) / 2) for a, b, *_ in (times for times in pairs.values() if len(times) > 1)]
    if apart:
        print(
            f"\nruns of the same lie {statistics.mean(apart):.1%} apart (mean of {len(apart)}, worst {max(apart):.1%})"
        )


def told_by_cause(folder: Path, calibration: str) -> None:
    """The mean error of the processor's runs with every cause, and with each of them left out."""
    print(f"{'left out':<36}{'mean error':>12}{'bias':>8}{'without ' + GONE:>12}")
    for name in ("", *CAUSES):
        where, what, instead = CAUSES.get(name, (weight_traffic, "CpuHostWork", CpuHostWork))
        was = getattr(where, what)
        setattr(where, what, instead)
        calibrations._calibrated.cache_clear()  # pyright: ignore[reportPrivateUsage]
        weight_traffic._KNOWN.clear()  # pyright: ignore[reportPrivateUsage]
        rows = [row(line, calibration) for line in lines(folder) if line["assignment"]["device"] == "cpu"]
        setattr(where, what, was)
        errors = [one.found.error.relative["step_seconds"] for one in rows]
        rest = [error for one, error in zip(rows, errors, strict=True) if GONE not in one.strategy.split()]
        print(
            f"{name or 'none':<36}{statistics.mean(map(abs, errors)):>12.1%}{statistics.mean(errors):>+8.1%}"
            f"{statistics.mean(map(abs, rest)):>12.1%}"
        )


def main() -> None:
    given = argparse.ArgumentParser()
    given.add_argument("folder", type=Path)
    given.add_argument("--calibration", default="none")
    given.add_argument("--causes", action="store_true", help="leave each cause out in turn")
    asked = given.parse_args()
    if asked.causes:
        told_by_cause(asked.folder, asked.calibration)
        return
    rows: list[Row] = []
    failed = 0
    for line in lines(asked.folder):
        if "failed" in line:
            failed += 1
            print("did not run:", line["key"][1:4], line["failed"].splitlines()[0][:100])
            continue
        try:
            rows.append(row(line, asked.calibration))
        except ForetellError as problem:
            print("not predicted:", line["key"][1:4], problem)
    rows = with_anchors(rows)
    for device in ("cpu", "cuda"):
        own = [one for one in rows if one.assignment.device == device]
        if own:
            print(f"\n{device}: {len(own)} runs")
            tell(sorted(own, key=lambda one: (one.assignment.model, one.strategy, one.ranks)))
            summary("strategy", grouped(own, lambda one: one.strategy))
            summary("ranks", grouped(own, lambda one: one.ranks))
            summary("all", {"": own, f"without {GONE}": [one for one in own if GONE not in one.strategy.split()]})
    noise(rows)


if __name__ == "__main__":
    main()
