"""Predict the rows of a study again, with a calibration: a line for each engine and number of ranks, and the means.

python studies/bench_h200_cores/predict.py studies/bench_h200_cores --calibration studies/h200_runs/calibration_4.json

`--write` puts what is predicted into the rows.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from foretell.bench import study
from foretell.bench.row import Predicted, Row
from foretell.cost.samples import Machine
from foretell.errors import ForetellError
from foretell.oracle.calibrations import device_of
from foretell.oracle.predict import Prediction
from foretell.runtime.assignment import Assignment
from foretell.runtime.comparison import foreseen
from foretell.runtime.recording import cluster_of


def machine(calibration: str) -> Machine:
    """The machine that a calibration is of."""
    assert device_of(calibration)
    return msgspec.convert(msgspec.json.decode(Path(calibration).read_bytes())["content"]["machine"], Machine)


def predicted(row: Row, calibration: str) -> Predicted:
    """What the oracle says of a row."""
    asked = Assignment(
        model=row.model, plan=row.plan, batch=row.batch, optimizer=row.optimizer, task=row.task, device=row.device
    )
    return _beside(row, foreseen(asked, cluster_of(machine(calibration)), calibration))


def _beside(row: Row, said: Prediction) -> Predicted:
    return Predicted(
        step_seconds=said.step_seconds,
        low_seconds=said.interval[0],
        high_seconds=said.interval[1],
        memory_bytes=said.memory.allocated,
        breakdown=said.breakdown,
        error=said.step_seconds / row.step_seconds - 1,
        memory_error=said.memory.allocated / row.memory_bytes - 1,
        calibrated=True,
    )


def tell(rows: Iterable[Row]) -> None:
    """Errors of the step: by engine over ranks, then all together."""
    errors: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    memory: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        assert row.predicted is not None
        errors[row.pair, row.engine][row.ranks] = row.predicted.error
        memory[row.pair, row.engine].append(abs(row.predicted.memory_error))
    counts = sorted({ranks for own in errors.values() for ranks in own})
    print(f"{'pair':<10}{'engine':<14}" + "".join(f"{ranks:>8}" for ranks in counts) + f"{'mean':>8}{'memory':>8}")
    for (pair, engine), own in sorted(errors.items()):
        cells = "".join(f"{own[ranks]:>+8.1%}" if ranks in own else " " * 8 for ranks in counts)
        found = statistics.mean(map(abs, own.values()))
        print(f"{pair:<10}{engine:<14}{cells}{found:>8.1%}{statistics.mean(memory[pair, engine]):>8.1%}")
    _mean("all", errors, memory, lambda engine: True)
    _mean("without FSDP2", errors, memory, lambda engine: "fsdp2" not in engine)


def _mean(
    title: str,
    errors: dict[tuple[str, str], dict[int, float]],
    memory: dict[tuple[str, str], list[float]],
    wanted: Callable[[str], bool],
) -> None:
    of_steps = [error for (_, engine), own in errors.items() for error in own.values() if wanted(engine)]
    of_memory = [error for (_, engine), own in memory.items() for error in own if wanted(engine)]
    print(
        f"{title}: {len(of_steps)} rows, steps {statistics.mean(map(abs, of_steps)):.1%} off in the mean "
        f"(bias {statistics.mean(of_steps):+.1%}), memory {statistics.mean(of_memory):.1%}"
    )


def main() -> None:
    given = argparse.ArgumentParser()
    given.add_argument("folder", type=Path)
    given.add_argument("--calibration", default="", help="none: what the rows say already")
    given.add_argument("--write", action="store_true")
    asked = given.parse_args()
    rows = [row for row in study.read(asked.folder).rows if row.ok and row.predicted is not None]
    if asked.calibration:
        rows = [_again(row, asked.calibration) for row in rows]
    if asked.write:
        for row in rows:
            study.keep(asked.folder, row)
    tell(rows)


def _again(row: Row, calibration: str) -> Row:
    try:
        return msgspec.structs.replace(row, predicted=predicted(row, calibration))
    except ForetellError as problem:
        print("not predicted:", row.pair, row.engine, row.ranks, problem)
        return row


if __name__ == "__main__":
    main()
