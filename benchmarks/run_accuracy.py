"""How far predictions are from runs on two ranks of this machine, next to how far runs lie apart from each other.

    python benchmarks/run_accuracy.py                 in less than eight minutes on a quiet machine with two cores
    python benchmarks/run_accuracy.py --rounds 1 --steps 5 --only llama
    python benchmarks/run_accuracy.py --calibration cpu.json
    python benchmarks/run_accuracy.py --phases --keep FOLDER        the phases of every cell; what was measured is kept
    python benchmarks/run_accuracy.py --phases --again FOLDER       predict it again, and run nothing

Passes of one calibration and rounds of all cells take turns, so that what the machine does meanwhile is in both. Three
figures are compared:

    step       the median step, by the wall's clock
    own        what a rank's own thread computed (forward, backward, update): other programs take no part of it
    memory     tensors at the fullest moment, by the allocator's count

The noise floor of a figure is how far rounds of the same cell are from their median, in the mean. Cells for which no
time is left are told.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from foretell.calibration.measure import Wanted, measure
from foretell.cost.core_contention import held_up_by_others
from foretell.cost.samples import Calibration
from foretell.cost.samples import calibration as calibration_of
from foretell.errors import ForetellError
from foretell.hardware import this_machine
from foretell.oracle.calibrations import with_calibration
from foretell.oracle.predict import Prediction, predict
from foretell.records import store
from foretell.runtime.assignment import Assignment
from foretell.runtime.launch import Ranks
from foretell.runtime.measure import Measurement
from foretell.runtime.recording import observed

LLAMA = "llama:layers=4,hidden=256,heads=8,kv_heads=4,ffn=768,vocab=1024,seq=64"
GPT = "gpt2:layers=4,hidden=256,heads=4,vocab=1024,seq=64"
CNN = "resnet18:image=64,classes=256"
MLP = "mlp:layers=6,hidden=1024"

CELLS = (
    (LLAMA, 8, ("dp1", "dp2", "dp2:zero1", "dp2:zero2", "dp2:zero3", "tp2", "pp2:1f1b +m4", "dp2 +recompute:block")),
    (CNN, 8, ("dp1", "dp2", "dp2:zero1", "dp2:zero2", "dp2:zero3", "spatial2", "filter2", "channel2", "pp2:1f1b +m4")),
    (GPT, 8, ("dp1", "dp2", "tp2", "pp2:1f1b +m4")),
    (MLP, 64, ("dp1", "dp2", "filter2")),
    ("lenet", 128, ("dp1", "dp2", "spatial2")),
)

COMPUTING = ("forward", "backward", "recompute", "optimizer")

CALIBRATION, RUNS = "calibration.json", "runs.json"
"""Files of a folder in which measurements are kept."""


class Cell(NamedTuple):
    """A model under a plan, and what came of its rounds."""

    assignment: Assignment
    rounds: list[Measurement]

    @property
    def words(self) -> str:
        return f"{self.assignment.model} {self.assignment.plan}"

    @property
    def name(self) -> str:
        return f"{self.assignment.model.partition(':')[0]:<9} {self.assignment.plan}"


def own(found: Measurement) -> float:
    """Seconds that the busiest rank's thread computed."""
    return max(
        sum(found.busy_by_rank.get(name, [0.0] * found.ranks)[rank] for name in COMPUTING)
        for rank in range(found.ranks)
    )


def said(found: Prediction, ranks: int, known: Calibration) -> float:
    """The same as predicted: without what holds a thread up."""
    return sum(found.breakdown.get(name, 0.0) for name in COMPUTING) / held_up_by_others(known, ranks)


def prediction(assignment: Assignment, file: Path) -> Prediction:
    known = with_calibration(assignment.setting, this_machine.processor(), str(file))
    return predict(known.setting, known.cluster)


def apart(values: list[float]) -> float:
    """How far values are from their median, in the mean, as a share of it."""
    centre = statistics.median(values)
    return statistics.mean(abs(value - centre) for value in values) / centre


def run(cells: list[Cell], ranks: Ranks, end: float) -> int:
    """A round of all cells; how many there was no time for."""
    for at, cell in enumerate(cells):
        if time.monotonic() > end:
            return len(cells) - at
        try:
            cell.rounds.append(observed(cell.assignment, ranks.run(cell.assignment, 300)))
        except ForetellError as problem:
            print(f"{cell.name}: {str(problem).splitlines()[0]}", flush=True)
    return 0


def measured(cells: list[Cell], rounds: int, calibration: Path | None, file: Path, end: float) -> None:
    """Passes of the calibration and rounds in turn."""
    with Ranks() as ranks:
        for at in range(rounds):
            if calibration is None:
                measure(Wanted("cpu", passes=at + 1, resume=at > 0), file)
            left = run(cells, ranks, end)
            print(f"round {at + 1} of {rounds}" + (f": no time for {left} cells" if left else ""), flush=True)


def phases(cells: list[Cell], file: Path) -> None:
    """Where a step goes: measured and predicted, with the time that a rank's own thread had a core in brackets."""
    print("\nmeasured (on a core) / predicted, ms")
    for cell in (cell for cell in cells if cell.rounds):
        told, found = prediction(cell.assignment, file).breakdown, [one.breakdown for one in cell.rounds]
        parts: list[str] = []
        for name in dict.fromkeys(name for one in (*found, told) for name in one):
            measured = statistics.median(one.get(name, 0.0) for one in found)
            own = f" ({1e3 * busy(cell, name):.1f})" if name in COMPUTING else ""
            parts.append(f"{name} {1e3 * measured:.1f}{own} / {1e3 * told.get(name, 0.0):.1f}")
        print(f"{cell.name:<31}  " + ", ".join(parts))


def busy(cell: Cell, name: str) -> float:
    """Seconds of a phase that the busiest rank's thread had a core."""
    return statistics.median(max(one.busy_by_rank.get(name, [0.0])) for one in cell.rounds)


def tell(cells: list[Cell], file: Path) -> list[dict[str, float | str]]:
    """A line a cell."""
    rows: list[dict[str, float | str]] = []
    known = calibration_of(store.read(file), str(file))
    names = ("step, ms", "predicted", "error", "own, ms", "predicted", "error", "memory")
    print(f"\n{'':<31}" + "".join(f"{name:>10}" for name in names))
    for cell in (cell for cell in cells if cell.rounds):
        told = prediction(cell.assignment, file)
        step = statistics.median(one.step_seconds for one in cell.rounds)
        mine = statistics.median(map(own, cell.rounds))
        expected, computing = told.step_seconds, said(told, cell.rounds[0].ranks, known)
        memory = told.memory.allocated / min(one.memory.allocated for one in cell.rounds) - 1
        row = {
            "cell": cell.name,
            "model": cell.assignment.model.partition(":")[0],
            "plan": cell.assignment.plan,
            "step": expected / step - 1,
            "own": computing / mine - 1,
            "memory": memory,
            "step noise": apart([one.step_seconds for one in cell.rounds]),
            "own noise": apart(list(map(own, cell.rounds))),
        }
        rows.append(row)
        print(
            f"{cell.name:<31}{1e3 * step:>10.1f}{1e3 * expected:>10.1f}{row['step']:>+10.0%}"
            f"{1e3 * mine:>10.1f}{1e3 * computing:>10.1f}{row['own']:>+10.0%}{memory:>+10.1%}"
        )
    return rows


def grouped(rows: list[dict[str, float | str]], by: str) -> None:
    """The mean error of each plan, or of each model."""
    print(f"\n{by:<24}" + "".join(f"{name:>8}" for name in ("cells", "step", "bias", "own", "noise", "memory")))
    for name in dict.fromkeys(row[by] for row in rows):
        own = [row for row in rows if row[by] == name]
        step, mine, memory, noise = (
            [float(row[key]) for row in own] for key in ("step", "own", "memory", "step noise")
        )
        print(
            f"{name:<24}{len(own):>8}{_mean(step):>8.1%}{statistics.mean(step):>+8.1%}{_mean(mine):>8.1%}"
            f"{statistics.mean(noise):>8.1%}{_mean(memory):>8.1%}"
        )


def _mean(errors: list[float]) -> float:
    return statistics.mean(map(abs, errors))


def summary(rows: list[dict[str, float | str]]) -> None:
    print()
    for name in ("step", "own", "memory"):
        errors = [float(row[name]) for row in rows]
        noise = [float(row[f"{name} noise"]) for row in rows] if name != "memory" else [0.0]
        print(
            f"{name:<8} mean error {_mean(errors):.1%}, bias {statistics.mean(errors):+.1%}, "
            f"median {statistics.median(map(abs, errors)):.1%}; noise of the runs {statistics.mean(noise):.1%}"
        )
    inside = sum(abs(float(row["memory"])) <= 0.05 for row in rows)
    print(f"memory within 5 % in {inside} of {len(rows)} cells")


def keep(cells: list[Cell], file: Path, folder: Path) -> None:
    """What was measured, for `--again` with another code."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CALIBRATION).write_bytes(file.read_bytes())
    (folder / RUNS).write_bytes(msgspec.json.encode(cells))


def kept(folder: Path) -> list[Cell]:
    return msgspec.json.decode((folder / RUNS).read_bytes(), type=list[Cell])


def wanted(asked: argparse.Namespace) -> list[Cell]:
    cells = [
        Cell(Assignment(model=model, plan=plan, batch=batch, steps=asked.steps), [])
        for model, batch, plans in CELLS
        for plan in plans
    ]
    return [cell for cell in cells if asked.only in cell.words]


def main() -> None:
    given = argparse.ArgumentParser()
    given.add_argument("--rounds", type=int, default=3)
    given.add_argument("--steps", type=int, default=6)
    given.add_argument("--only", default="", help="cells whose model and plan have these letters")
    given.add_argument("--minutes", type=float, default=7.0, help="after which no cell is begun")
    given.add_argument("--calibration", type=Path, help="instead of calibrating")
    given.add_argument("--out", type=Path, help="the figures as JSON")
    given.add_argument("--phases", action="store_true", help="also the phases of every cell")
    given.add_argument(
        "--again", type=Path, help="a folder of `--keep`: predict what was measured then, and run nothing"
    )
    given.add_argument("--keep", type=Path, help="a folder for the calibration and the measurements")
    asked = given.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = asked.calibration or (asked.again or Path(folder)) / CALIBRATION
        cells = [cell for cell in kept(asked.again) if asked.only in cell.words] if asked.again else wanted(asked)
        if not asked.again:
            measured(cells, asked.rounds, asked.calibration, file, time.monotonic() + 60 * asked.minutes)
        rows = tell(cells, file)
        if asked.phases:
            phases(cells, file)
        if asked.keep:
            keep(cells, file, asked.keep)
    grouped(rows, "plan")
    grouped(rows, "model")
    summary(rows)
    if asked.out:
        asked.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
