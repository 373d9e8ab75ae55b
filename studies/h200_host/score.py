"""Predicted against measured host time of whole steps: python studies/h200_host/score.py

A launch is what a calibration of that machine would say: the median over plain steps of the models that were seen.
Steps of Hugging Face's modules are left out: no shipped model has their operators.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]

import steps  # noqa: E402

from foretell.cost.price import priced  # noqa: E402
from foretell.hardware import catalog  # noqa: E402
from foretell.oracle.request import read  # noqa: E402
from foretell.oracle.resolve import resolve  # noqa: E402
from foretell.timeline.engine import kernels  # noqa: E402
from foretell.timeline.plan_table import PlanTable  # noqa: E402
from foretell.timeline.segments import HOST, SEGMENT  # noqa: E402

CLUSTER = "64xh200"
PLANS = {
    "plain": "dp1 +bf16",
    "autocast": "dp1 +amp_bf16",
    "recompute": "dp1 +recompute:block +bf16",
    "tp": "dp8 tp8 +bf16",
    "tp+rows": "dp8 tp8:sp +bf16",
    "fsdp": "dp8:zero3 +bf16",
    "fsdp+mixed": "dp8:zero3 +bf16",
    "tp+fsdp": "dp8:zero3 tp8 +bf16",
    "tp+rows+fsdp": "dp8:zero3 tp8:sp +bf16",
    "fsdp+recompute": "dp8:zero3 +recompute:block +bf16",
    "tp+fsdp+recompute": "dp8:zero3 tp8 +recompute:block +bf16",
}


def measured(name: str) -> dict[str, float]:
    """Microseconds of both passes of each zoo step, the median over rounds."""
    found: dict[str, list[float]] = defaultdict(list)
    for line in (HERE / name).read_text().splitlines():
        row = json.loads(line)
        source, _, how = row["case"].split()
        if source == "zoo" and how in PLANS:
            found[row["case"]].append(row["forward"]["median"] + row["backward"]["median"])
    return {case: statistics.median(each) for case, each in found.items()}


def launches(case: str) -> float:
    """What the host does in both passes, in launches."""
    _, model, how = case.split()
    plan, trainer = PLANS[how], "fsdp" if how == "fsdp+mixed" else "pytorch"
    batch = steps.BATCH.get(model, 1) * (8 if "dp8" in plan else 1)
    asked = resolve(read(model=steps.SHORT[model], plan=plan, batch=batch, trainer=trainer, on=CLUSTER))
    made = priced(asked.setting, catalog.cluster(CLUSTER))
    table = PlanTable(made.prices.cluster)
    table.add(made)
    tables, plans = table.tables(compiled=False), table.plans(compiled=False)
    segments, begin, end = kernels(fast=False).all_segments(tables, plans, 0)
    seconds = sum(segments[at + HOST] for slot in (0, 1) for at in range(begin[slot], end[slot], SEGMENT))
    return seconds / made.prices.trainer.host.launch


def main() -> None:
    seen, aside = measured("host_steps.jsonl"), measured("host_steps_aside.jsonl")
    plain = {case: launches(case) for case in seen if case.endswith(" plain")}
    launch = statistics.median(seen[case] / count for case, count in plain.items())
    print(f"a launch: {launch:.1f} us, the median of {len(plain)} plain steps")
    for which, rows in (("seen", seen), ("set aside", aside)):
        errors = []
        for case, microseconds in rows.items():
            error = launches(case) * launch / microseconds - 1
            errors.append(abs(error))
            print(f"  {which:9} {case:30} {microseconds / 1e3:7.1f} ms {error:+7.1%}")
        print(f"  {which}: median {statistics.median(errors):.1%} of {len(errors)}")


if __name__ == "__main__":
    main()
