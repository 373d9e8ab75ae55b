"""Predicted device time of each step against the time of its kernels: `python studies/h200_steps/busy.py FILE ...`.

The host is left out on both sides; lists without `busy_ms` have nothing to compare.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

from foretell.oracle.predict import predict
from foretell.validation.evaluate import compare
from foretell.validation.studies.device_steps import rows
from foretell.validation.study import MeasuredRun

DEVICE = ("forward", "backward", "recompute", "optimizer", "other")


def errors(path: Path) -> list[float]:
    """Predicted over measured, less one, of every step that could be predicted."""
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    busy = {f"{at}": line["busy_ms"] / 1e3 for at, line in enumerate(lines, 1) if "busy_ms" in line}
    told = [{key: "" if value is None else str(value) for key, value in line.items()} for line in lines]
    found = compare((row for row in rows(told) if isinstance(row, MeasuredRun) and row.id in busy), predict)
    return [
        sum(one.prediction.breakdown.get(name, 0.0) for name in DEVICE) / busy[one.row.id] - 1
        for one in found
        if one.prediction is not None
    ]


if __name__ == "__main__":
    for name in sys.argv[1:]:
        off = errors(Path(name))
        sizes = [abs(error) for error in off]
        print(f"{name}: {len(off)} steps, mean {statistics.mean(sizes):.1%}, median {statistics.median(sizes):.1%}")
