"""Predicts the steps of models.py: python studies/h200_hf_models/predict.py --out FILE [--calibration FILE]

A line a case: seconds of the step, bytes of tensors at the fullest moment, seconds that tracing and predicting took.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from models import CASES, aside

import foretell

HERE = Path(__file__).parent


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
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
                model = f"{HERE / 'models.py'}:{case.name}"
                found = foretell.predict(
                    model, "1xh200", case.plan, case.batch, optimizer="adamw", calibration=options.calibration
                )
                row |= {"seconds": found.step_seconds, "allocated": found.memory.allocated}

            except Exception as problem:
                row["failure"] = f"{type(problem).__name__}: {problem}"[:400]
            row["took"] = round(time.perf_counter() - begin, 2)
            file.write(json.dumps(row) + "\n")
            file.flush()
            said = f"{1e3 * found.step_seconds:8.1f} ms" if "seconds" in row else str(row["failure"])[:200]
            print(f"{row['took']:6} s  {case.name:16} {said}", flush=True)


if __name__ == "__main__":
    main()
