"""How far predictions are from runs on two ranks of this machine, next to how far runs lie apart from each other.

    python benchmarks/run_accuracy.py                 a calibration, three rounds of all cells, a calibration again
    python benchmarks/run_accuracy.py --rounds 2 --steps 5 --only llama

Each cell is predicted with the calibration before and the one after, and the two are averaged: what the machine did in
between lies between them. Three figures are compared:

    step       the median step, by the wall's clock
    own        what a rank's own thread computed (forward, backward, update): other programs take no part of it
    memory     tensors at the fullest moment, by the allocator's count

The noise floor of a figure is how far rounds of the same cell are from their median, in the mean.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
from pathlib import Path
from typing import NamedTuple

from foretell.calibration.measure import Wanted, measure
from foretell.errors import ForetellError
from foretell.hardware import this_machine
from foretell.oracle.calibrations import with_calibration
from foretell.oracle.predict import Prediction, predict
from foretell.runtime.assignment import Assignment
from foretell.runtime.launch import Ranks
from foretell.runtime.measure import Measurement
from foretell.runtime.recording import observed

LLAMA = "llama:layers=4,hidden=256,heads=8,kv_heads=4,ffn=768,vocab=1024,seq=128"
GPT = "gpt2:layers=4,hidden=256,heads=4,vocab=1024,seq=128"
CNN = "resnet18:image=64,classes=256"
MLP = "mlp:layers=6,hidden=1024"

CELLS = (
    (LLAMA, 8, ("dp1", "dp2", "dp2:zero1", "dp2:zero3", "tp2", "pp2:1f1b +m4", "dp2 +recompute:block")),
    (GPT, 8, ("dp1", "dp2", "tp2", "pp2:gpipe +m4")),
    (CNN, 16, ("dp1", "dp2", "dp2:zero1", "dp2:zero3", "spatial2", "filter2", "channel2", "pp2:1f1b +m4")),
    (MLP, 64, ("dp1", "dp2", "filter2", "channel2")),
    ("lenet", 128, ("dp1", "dp2", "spatial2")),
)

COMPUTING = ("forward", "backward", "recompute", "optimizer")


class Cell(NamedTuple):
    """A model under a plan, and what came of its rounds."""

    assignment: Assignment
    rounds: list[Measurement]

    @property
    def name(self) -> str:
        return f"{self.assignment.model.partition(':')[0]:<9} {self.assignment.plan}"


def own(found: Measurement) -> float:
    """Seconds that the busiest rank's thread computed."""
    return max(
        sum(found.busy_by_rank.get(name, [0.0] * found.ranks)[rank] for name in COMPUTING)
        for rank in range(found.ranks)
    )


def said(found: Prediction) -> float:
    return sum(found.breakdown.get(name, 0.0) for name in COMPUTING)


def predictions(assignment: Assignment, files: list[Path]) -> list[Prediction]:
    setting, cores = assignment.setting(), this_machine.processor()
    known = [with_calibration(setting, cores, str(file)) for file in files]
    return [predict(one.setting, one.cluster) for one in known]


def middle(values: list[float]) -> float:
    """The mean of ratios."""
    return math.exp(statistics.mean(map(math.log, values)))


def apart(values: list[float]) -> float:
    """How far values are from their median, in the mean, as a share of it."""
    centre = statistics.median(values)
    return statistics.mean(abs(value - centre) for value in values) / centre


def run(cells: list[Cell], rounds: int) -> None:
    with Ranks() as ranks:
        for at in range(rounds):
            for cell in cells:
                try:
                    cell.rounds.append(observed(cell.assignment, ranks.run(cell.assignment, 300)))
                except ForetellError as problem:
                    print(f"{cell.name}: {str(problem).splitlines()[0]}", flush=True)
            print(f"round {at + 1} of {rounds} is done", flush=True)


def tell(cells: list[Cell], files: list[Path]) -> list[dict[str, float | str]]:
    """A line a cell."""
    rows: list[dict[str, float | str]] = []
    names = ("step, ms", "predicted", "error", "own, ms", "predicted", "error", "memory")
    print(f"\n{'':<31}" + "".join(f"{name:>10}" for name in names))
    for cell in (cell for cell in cells if cell.rounds):
        told = predictions(cell.assignment, files)
        step = statistics.median(one.step_seconds for one in cell.rounds)
        mine = statistics.median(map(own, cell.rounds))
        expected, computing = middle([one.step_seconds for one in told]), middle([said(one) for one in told])
        memory = told[0].memory.allocated / cell.rounds[0].memory.allocated - 1
        row = {
            "cell": cell.name,
            "step": expected / step - 1,
            "own": computing / mine - 1,
            "memory": memory,
            "step noise": apart([one.step_seconds for one in cell.rounds]),
            "own noise": apart(list(map(own, cell.rounds))),
            "cores": mine / max(step, 1e-9),
        }
        rows.append(row)
        print(
            f"{cell.name:<31}{1e3 * step:>10.1f}{1e3 * expected:>10.1f}{row['step']:>+10.0%}"
            f"{1e3 * mine:>10.1f}{1e3 * computing:>10.1f}{row['own']:>+10.0%}{memory:>+10.1%}"
        )
    return rows


def summary(rows: list[dict[str, float | str]]) -> None:
    for name in ("step", "own", "memory"):
        errors = [float(row[name]) for row in rows]
        noise = [float(row[f"{name} noise"]) for row in rows] if name != "memory" else [0.0]
        print(
            f"{name:<8} mean error {statistics.mean(map(abs, errors)):.1%}, bias {statistics.mean(errors):+.1%}, "
            f"median {statistics.median(map(abs, errors)):.1%}; noise of the runs {statistics.mean(noise):.1%}"
        )
    inside = sum(abs(float(row["memory"])) <= 0.05 for row in rows)
    print(f"memory within 5 % in {inside} of {len(rows)} cells")


def main() -> None:
    given = argparse.ArgumentParser()
    given.add_argument("--rounds", type=int, default=3)
    given.add_argument("--steps", type=int, default=10)
    given.add_argument("--only", default="")
    given.add_argument("--quick", action="store_true", help="a quick calibration")
    given.add_argument("--calibration", type=Path, nargs="*", help="instead of calibrating")
    given.add_argument("--out", type=Path, help="the figures as JSON")
    asked = given.parse_args()
    cells = [
        Cell(Assignment(model=model, plan=plan, batch=batch, steps=asked.steps), [])
        for model, batch, plans in CELLS
        for plan in plans
        if asked.only in f"{model} {plan}"
    ]
    with tempfile.TemporaryDirectory() as folder:
        files = asked.calibration or [Path(folder) / "before.json", Path(folder) / "after.json"]
        if not asked.calibration:
            measure(Wanted("cpu", asked.quick), files[0])
        run(cells, asked.rounds)
        if not asked.calibration:
            measure(Wanted("cpu", asked.quick), files[1])
        rows = tell(cells, files)
    print()
    summary(rows)
    if asked.out:
        asked.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
