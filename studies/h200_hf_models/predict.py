"""Predicts the steps of models.py: python studies/h200_hf_models/predict.py --graphs FOLDER --out FILE

A line a case: seconds of the step, bytes of tensors at the fullest moment; without a calibration, or with one
(`--calibration FILE`). Models are traced once, and their graphs kept.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from models import CASES, Case, aside

import foretell
from foretell.model.graph import Graph

HERE = Path(__file__).parent


def traced(case: Case, folder: Path) -> Graph:
    file = folder / f"{case.name}.json"
    if not file.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        file.write_bytes(foretell.load(f"{HERE / 'models.py'}:{case.name}", case.batch).to_json())
    return Graph.from_json(file.read_bytes())


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--graphs", type=Path, required=True)
    asked.add_argument("--out", type=Path, required=True)
    asked.add_argument("--calibration", default="none")
    asked.add_argument("--only", default="")
    options = asked.parse_args()
    judging = aside()
    with options.out.open("w") as file:
        for case in (case for case in CASES if options.only in case.name):
            begin = time.perf_counter()
            row: dict[str, object] = {"name": case.name, "aside": case.name in judging, "plan": case.plan}
            try:
                graph = traced(case, options.graphs)
                found = foretell.predict(
                    graph, "1xh200", case.plan, case.batch, optimizer="adamw", calibration=options.calibration
                )
                row |= {"seconds": found.step_seconds, "allocated": found.memory.allocated, "parts": found.breakdown}
                said = f"{1e3 * found.step_seconds:8.1f} ms"
            except Exception as problem:
                row["failure"] = said = f"{type(problem).__name__}: {problem}"[:400]
            file.write(json.dumps({**row, "took": round(time.perf_counter() - begin, 2)}) + "\n")
            file.flush()
            print(f"{time.perf_counter() - begin:6.1f} s  {case.name:16} {said[:200]}", flush=True)


if __name__ == "__main__":
    main()
