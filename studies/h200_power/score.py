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
from foretell.oracle.energy import StepEnergy, step_energy
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


LATER = {
    "llama3.2-1b": ("llama3.2-1b:seq=2048", 4),
    "bert-large": ("bert-large-mlm", 32),
    "convnext-base": ("convnext-base", 128),
    "swin-t": ("swin-t", 256),
    "densenet121": ("densenet121", 128),
    "vgg16": ("vgg16", 128),
    "vit-l-16": ("vit-l-16", 64),
    "mobilenet-v2": ("mobilenet-v2", 256),
}
"""Those of `caps.py`."""
LIMIT = 700
"""Watts that the card may take, unless somebody caps it."""


def readings(file: str = "samples.jsonl") -> list[list[float]]:
    lines = (HERE / file).read_text().splitlines()[1:]
    return [json.loads(line) for line in lines if line.endswith("]")]


def later(group: str) -> Iterator[tuple[Row, float]]:
    """Rows of `caps.py` with their watts."""
    for rows, samples in (("caps.jsonl", "caps_samples.jsonl"), ("caps2.jsonl", "caps2_samples.jsonl")):
        every = readings(samples) if (HERE / rows).exists() else []
        for line in (HERE / rows).read_text().splitlines() if every else ():
            row = json.loads(line)
            real = watts(row, every) if row["group"] == group and "instant" in row else None
            if real is not None:
                yield row, real


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
    return energy_of(*STEPS[name]).watts


def energy_of(model: str, batch: int) -> StepEnergy:
    asked, found = predicted(read(model=model, on="1xh200", plan="dp1 +amp_bf16", batch=batch))
    energy = step_energy(priced(asked.setting, asked.place), found)
    assert energy is not None
    return energy


def joules() -> None:
    """Joules of steps that `caps.py` ran, and of what they are made: watts, and seconds."""
    errors: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for row, real in later("step"):
        said, seconds = energy_of(*LATER[row["id"]]), 1 / row["calls_per_second"]
        parts = said.joules / (real * seconds) - 1, said.watts / real - 1
        errors[row["set_aside"]].append((abs(parts[0]), abs(parts[1])))
        half = "set aside" if row["set_aside"] else "seen"
        print(
            f"{row['id']:16}{half:10}{real * seconds:7.1f} J measured{said.joules:7.1f} J said{parts[0]:+8.1%}, "
            f"watts {real:.0f} and {said.watts:.0f}{parts[1]:+8.1%}, seconds{said.step_seconds / seconds - 1:+8.1%}"
        )
    for half, own in errors.items():
        if own:
            both = [statistics.median(column) for column in zip(*own, strict=True)]
            print(
                f"steps {'set aside' if half else 'seen'}: {len(own)}, median joules {both[0]:.1%}, watts {both[1]:.1%}"
            )


def frontier() -> None:
    """What a cap or a locked clock costs and saves: calls a second and joules of a call against those without."""
    free = {row["id"]: (row["calls_per_second"], real) for row, real in later("held") if row["value"] == LIMIT}
    every = readings()
    for line in (HERE / "measured.jsonl").read_text().splitlines():
        row = json.loads(line)
        real = watts(row, every) if "instant" in row else None
        if real is not None:
            free.setdefault(row["id"], (row["calls_per_second"], real))
    for row, real in later("held"):
        if row["id"] in free and row["value"] != LIMIT:
            rate, drawn = free[row["id"]]
            faster, cost = row["calls_per_second"] / rate, (real / row["calls_per_second"]) / (drawn / rate)
            setting = f"{row['way']} {row['value']} {'W' if row['way'] == 'cap' else 'MHz'}"
            print(f"{setting:16}{row['id']:18}{real:6.0f} W{faster:8.1%} of the rate{cost:8.1%} of the joules")


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
    joules()
    frontier()


if __name__ == "__main__":
    main()
