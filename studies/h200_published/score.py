"""Published, rehearsed and predicted, beside each other: python studies/h200_published/score.py

Rows of rehearsals.jsonl (made by studies/h200_rehearsals/measure.py --cases studies/h200_published/cases.jsonl) with
the published row that each stands for. A step that was rehearsed with fewer layers, at two depths, is extended by what
a layer takes. Published runs are predicted for the trainers of their day, rehearsed ones for today's.
"""

from __future__ import annotations

import csv
import json
import statistics
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
STUDIES = HERE.parent
sys.path.insert(0, str(STUDIES / "h200_rehearsals"))

from cases import Case  # noqa: E402
from score import predicted  # noqa: E402

import foretell  # noqa: E402

TRAINERS = {"torchtitan": "torchtitan-2025", "Composer/PyTorch-FSDP": "llm-foundry"}
DEVICES = {"H100-96GB": "h100-500w", "H100-80GB": "h100"}


def main() -> None:
    with (STUDIES / "published" / "llm_measured.csv").open() as file:
        published = {row["id"]: row for row in csv.DictReader(file)}
    rows = [json.loads(line) for line in (HERE / "rehearsals.jsonl").read_text().splitlines()]
    ran = {Case(**_plain(row["case"])).name: row for row in rows if "steps" in row}
    cases: dict[str, list[Case]] = {}
    for line in (HERE / "cases.jsonl").read_text().splitlines():
        told = json.loads(line)
        cases.setdefault(told["id"], []).append(Case(**told["case"]))
    print("| run | plan | published, H100 | predicted | rehearsed, H200 | predicted | H200 over H100, and said |")
    print("|---|---|--:|--:|--:|--:|--:|")
    for name, own in cases.items():
        if all(case.name in ran for case in own):
            print(_row(name, published[name], own, ran))


def _plain(told: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in told.items() if key != "name"}


def _row(name: str, row: dict[str, str], own: list[Case], ran: dict[str, Any]) -> str:
    steps = [statistics.median(ran[case.name]["steps"]) for case in own]
    layers = int(row["layers"])
    whole = own[-1]
    if len(own) > 1:
        depths = [int(case.model.rpartition("=")[2]) for case in own]
        whole = Case(**{**_plain(own[-1].told()), "model": own[-1].model.partition(":")[0]})
        steps = [steps[1] + (steps[1] - steps[0]) * (layers - depths[1]) / (depths[1] - depths[0])]
    tokens = int(row["global_batch"]) * int(row["seq_len"]) / int(row["n_gpus"])
    real = tokens / float(row["tokens_per_s_per_gpu"])
    here = predicted(whole).step_seconds
    device = next(word for known, word in DEVICES.items() if row["gpu"].startswith(known))
    there = foretell.predict(
        whole.model, f"{row['n_gpus']}x{device}", whole.plan, whole.batch,
        seq=whole.seq, trainer=TRAINERS[row["framework"]], calibration="none",
    ).step_seconds  # fmt: skip
    cells = [f"{real:.3f} s", f"{there:.3f} s ({there / real - 1:+.0%})", f"{steps[0]:.3f} s"]
    cells += [f"{here:.3f} s ({here / steps[0] - 1:+.0%})", f"{steps[0] / real:.2f}, {here / there:.2f}"]
    return f"| {name}, {row['model']} | {whole.plan} | " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
