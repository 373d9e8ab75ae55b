"""Predicted against measured: python studies/h200_hf_models/score.py PREDICTED ... [--rows]

PREDICTED are files that predict.py wrote: without a calibration, and with that of the same machine and hour. Of the
half set aside only totals are printed. `--rows` shows the other one.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from models import CASES, aside

HERE = Path(__file__).parent


def lines(file: Path) -> dict[str, dict[str, Any]]:
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return {row["name"]: row for row in rows if "name" in row}


def errors(said: dict[str, Any], row: dict[str, Any]) -> tuple[float, float]:
    """Predicted over measured, less one: of the step and of bytes allocated."""
    return said["seconds"] / statistics.median(row["steps"]) - 1, said["allocated"] / row["allocated"] - 1


def told(name: str, found: list[float]) -> str:
    sizes = sorted(map(abs, found))
    last = sizes[min(len(sizes) - 1, int(0.9 * len(sizes)))]
    bias = statistics.median(found)
    middle = f"{statistics.median(sizes):6.1%} median {last:6.1%} p90 {statistics.fmean(sizes):6.1%} mean"
    return f"{name} {middle} {bias:+6.1%}"


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("predicted", type=Path, nargs="+")
    asked.add_argument("--measured", type=Path, default=HERE / "hf_models.jsonl")
    asked.add_argument("--rows", action="store_true")
    options = asked.parse_args()
    measured, judging = lines(options.measured), aside()
    ran = {name: row for name, row in measured.items() if "steps" in row}
    for file in options.predicted:
        said = {name: one for name, one in lines(file).items() if "seconds" in one and name in ran}
        print(f"{file.stem}: {len(said)} of {len(CASES)} traced and measured")
        for half, names in (("in view", set(said) - judging), ("set aside", set(said) & judging)):
            both = [errors(said[name], ran[name]) for name in sorted(names)]
            if both:
                print(f"  {half:9} {len(both):2}  {told('step', [one for one, _ in both])}")
                print(f"  {'':12}  {told('allocated', [one for _, one in both])}")
        for name in (case.name for case in CASES if options.rows and case.name in said and case.name not in judging):
            step, held = errors(said[name], ran[name])
            row = ran[name]
            seconds = statistics.median(row["steps"])
            print(
                f"    {name:16} {step:+7.1%} {held:+7.1%}  {1e3 * seconds:7.1f} ms, kernels {1e3 * row['busy']:7.1f},"
                f" host {1e3 * row['host']:7.1f}, {row['allocated'] / 2**30:5.1f} GiB"
            )


if __name__ == "__main__":
    main()
