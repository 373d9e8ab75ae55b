"""Predicted against measured watts: `python studies/h200_power/score.py`.

Measured: the card's energy counter between two of its own changes, over the seconds between them (`samples.jsonl` has
every reading; a window cut anywhere else is off by a tenth of a second). Predicted: the shares of `cost/energy.py` with
the flops and bytes a second that the load reached, for steps those that `predict` says. The half set aside judges.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from foretell.cost.energy import IDLE, MATRIX, MEMORY, MOST, OPERATIONS, RUNNING, VECTOR
from foretell.cost.price import priced
from foretell.hardware.members import device
from foretell.oracle.energy import step_energy
from foretell.oracle.predicted import predicted
from foretell.oracle.request import read

HERE = Path(__file__).parent
H200 = device("h200")
OPERATIONS_OF = {"add": 1, "gelu": 8, "softmax": 5, "layer_norm": 7, "sum": 1, "adamw": 12}
"""Operations of an element as the graph counts them."""
STEPS = {
    "resnet50": ("resnet50", 256),
    "vit_b_16": ("vit-b-16", 128),
    "gpt2": ("gpt2", 16),
    "gpt2_medium": ("gpt2-medium", 8),
}
Row = dict[str, Any]


def readings() -> list[list[float]]:
    lines = (HERE / "samples.jsonl").read_text().splitlines()[1:]
    return [json.loads(line) for line in lines]


def watts(row: Row, every: list[list[float]]) -> float | None:
    """Joules over seconds between the counter's changes while the row's loop was steady."""
    own, instant = row["instant"], [reading[1] for reading in every]
    for at in range(len(instant) - len(own) + 1):
        if instant[at : at + len(own)] == own:
            inside = every[max(0, at - 1) : at + len(own)]
            changes = [after for before, after in pairwise(inside) if after[3] != before[3]]
            if len(changes) > 1:
                return (changes[-1][3] - changes[0][3]) / (changes[-1][0] - changes[0][0])
    return None


def said(row: Row) -> float | None:
    """Watts by the law; None for what it has no word for."""
    if row["id"].startswith("idle"):
        return IDLE * H200.power_watts
    if row["data"] == "zeros":
        return None  # data of a training step are not zeros
    rate, kind = row["calls_per_second"], row["kind"]
    if kind.startswith("step_"):
        return step(kind.removeprefix("step_"))
    flops, moved = row["flops"] * rate, row["bytes"] * rate
    if kind in ("to_device", "tiny_add"):
        moved = 0.0
    precision = row["precision"]
    units = H200.peak.get(precision) if kind not in OPERATIONS_OF else None
    peak, share = (units, MATRIX) if units else (H200.vector["fp32"], VECTOR)
    if kind in OPERATIONS_OF:
        elements = row["bytes"] / (28 if kind == "adamw" else 8 if precision == "fp32" else 4) * rate
        products = OPERATIONS_OF[kind] * elements / H200.vector["fp32"] * OPERATIONS
    else:
        products = flops / peak * share
    busy = products + moved / H200.memory_bandwidth * MEMORY
    runs = 0.0 if kind in ("to_device", "tiny_add") else row["busy"]
    return H200.power_watts * min(MOST, IDLE + max(busy, RUNNING * runs))


def step(name: str) -> float:
    model, batch = STEPS[name]
    asked, found = predicted(read(model=model, on="1xh200", plan="dp1 +amp_bf16", batch=batch))
    energy = step_energy(priced(asked.setting, asked.place), found)
    assert energy is not None
    return energy.watts


def rows() -> Iterator[tuple[Row, float, float]]:
    every = readings()
    for line in (HERE / "measured.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row["group"] == "power" and "instant" in row:
            real, told = watts(row, every), said(row)
            if real is not None and told is not None:
                yield row, real, told


def main() -> None:
    errors: dict[bool, list[float]] = {False: [], True: []}
    for row, real, told in rows():
        errors[row["set_aside"]].append(abs(told / real - 1))
        half = "set aside" if row["set_aside"] else "seen"
        print(f"{row['id']:26}{half:10}{real:6.0f} W measured{told:6.0f} W said{told / real - 1:+8.1%}")
    for half, own in errors.items():
        if own:
            print(f"{'set aside' if half else 'seen'}: {len(own)} loads, median {statistics.median(own):.1%}")


if __name__ == "__main__":
    main()
