"""Predict the rows of a study again, with a calibration: a line for each engine and number of ranks, and the means.

python studies/bench_h200_cores/predict.py studies/bench_h200_cores
python studies/bench_h200_cores/predict.py studies/bench_h200_cores --calibration FILE

Without a calibration, what was predicted when the rows were measured. `--write` puts what is predicted into the rows.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import msgspec

from foretell.bench import study
from foretell.bench.row import BenchRow, PredictedRow
from foretell.cost.samples import MeasuredMachine
from foretell.errors import ForetellError
from foretell.oracle.calibrations import device_of
from foretell.oracle.predict import Prediction
from foretell.runtime.assignment import Assignment
from foretell.runtime.comparison import foreseen
from foretell.runtime.recording import cluster_of


def machine(calibration: str) -> MeasuredMachine:
    """The machine that a calibration is of."""
    assert device_of(calibration)
    return msgspec.convert(msgspec.json.decode(Path(calibration).read_bytes())["content"]["machine"], MeasuredMachine)


def predicted(row: BenchRow, calibration: str) -> PredictedRow:
    """What the oracle says of a row."""
    asked = Assignment(
        model=row.model, plan=row.plan, batch=row.batch, optimizer=row.optimizer, task=row.task, device=row.device
    )
    return _beside(row, foreseen(asked, cluster_of(machine(calibration)), calibration))


def _beside(row: BenchRow, said: Prediction) -> PredictedRow:
    return PredictedRow(
        step_seconds=said.step_seconds,
        low_seconds=said.interval[0],
        high_seconds=said.interval[1],
        memory_bytes=said.memory.allocated,
        breakdown=said.breakdown,
        error=said.step_seconds / row.step_seconds - 1,
        memory_error=said.memory.allocated / row.memory_bytes - 1,
        calibrated=True,
    )


def tell(rows: list[BenchRow]) -> None:
    """Errors of the step, the mean over seeds: by engine over ranks, then all together."""
    counts = sorted({row.ranks for row in rows})
    print(f"{'pair':<13}{'engine':<18}" + "".join(f"{ranks:>8}" for ranks in counts) + f"{'mean':>8}{'memory':>8}")
    for pair, engine in sorted({(row.pair, row.engine) for row in rows}):
        own = [row for row in rows if (row.pair, row.engine) == (pair, engine)]
        cells = "".join(_cell([row for row in own if row.ranks == ranks]) for ranks in counts)
        print(f"{pair:<13}{engine:<18}{cells}{_size(_steps(own)):>8.1%}{_size(_memory(own)):>8.1%}")
    for title, skip in (("all", "none"), ("without FSDP2", "fsdp2")):
        own = [row for row in rows if not row.engine.startswith(skip)]
        print(
            f"{title}: {len(own)} rows, steps {_size(_steps(own)):.1%} off in the mean "
            f"(bias {statistics.mean(_steps(own)):+.1%}), memory {_size(_memory(own)):.1%}"
        )


def _cell(rows: list[BenchRow]) -> str:
    return f"{statistics.mean(_steps(rows)):>+8.1%}" if rows else " " * 8


def _steps(rows: list[BenchRow]) -> list[float]:
    return [row.predicted.error for row in rows if row.predicted is not None]


def _memory(rows: list[BenchRow]) -> list[float]:
    return [row.predicted.memory_error for row in rows if row.predicted is not None]


def _size(errors: list[float]) -> float:
    return statistics.mean(map(abs, errors))


def main() -> None:
    given = argparse.ArgumentParser()
    given.add_argument("folder", type=Path)
    given.add_argument(
        "--calibration", default="", help="a file; without it, what was predicted when the rows were measured"
    )
    given.add_argument("--write", action="store_true")
    asked = given.parse_args()
    rows = [row for row in study.read(asked.folder).rows if row.ok and row.predicted is not None]
    if asked.calibration:
        rows = [_again(row, asked.calibration) for row in rows]
    if asked.write:
        for row in rows:
            study.keep(asked.folder, row)
    tell(rows)


def _again(row: BenchRow, calibration: str) -> BenchRow:
    try:
        return msgspec.structs.replace(row, predicted=predicted(row, calibration))
    except ForetellError as problem:
        print("not predicted:", row.pair, row.engine, row.ranks, problem)
        return row


if __name__ == "__main__":
    main()
