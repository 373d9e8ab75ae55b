"""Predicted against rehearsed ranks: python studies/rehearsed_ranks/score.py [TRAINER ...]"""

from __future__ import annotations

import csv
import random
import statistics
import sys
from pathlib import Path

import msgspec

from foretell.cost.allocator import reserved_bytes
from foretell.hardware import catalog
from foretell.oracle.predict import Prediction, predict
from foretell.oracle.request import Request
from foretell.oracle.resolve import resolve
from foretell.plan.text import parse
from foretell.program.lower import lower
from foretell.runtime.recording import standing_in

GIB = 2**30
ROWS = Path(__file__).with_name("measured.csv")
SEED = 25
"""Four of the eight, drawn before a constant was chosen; the other four judge it."""


def set_aside(ids: list[str]) -> set[str]:
    """The rows that no constant may be chosen on."""
    return set(random.Random(SEED).sample(ids, len(ids) // 2))


def main(trainers: list[str]) -> None:
    rows = list(csv.DictReader(ROWS.read_text().splitlines()))
    aside = set_aside([row["id"] for row in rows])
    for name in trainers:
        print(f"{name}: step without messages, allocated, reserved: predicted over rehearsed")
        errors: dict[str, list[tuple[float, ...]]] = {"seen": [], "set aside": []}
        for row in rows:
            which = "set aside" if row["id"] in aside else "seen"
            found = _without_messages(row, name)
            errors[which].append(_error(row, found))
            told = "".join(f"{one:+8.1%}" for one in errors[which][-1])
            print(f"  {row['id']} {which:9} {told}  {row['model']} {row['plan']}")
        for which, rated in errors.items():
            medians = [statistics.median(abs(error) for error in figure) for figure in zip(*rated, strict=True)]
            print(f"  {which}: median {'  '.join(f'{median:.1%}' for median in medians)}")


def _without_messages(row: dict[str, str], trainer: str) -> Prediction:
    """A prediction on the same cluster with messages that take no time."""
    cluster = catalog.cluster(row["cluster"])
    asked = Request(model=row["model"], plan=parse(row["plan"]), batch=int(row["sequences"]), trainer=trainer)
    setting = resolve(asked).setting
    found = predict(setting, standing_in(cluster, cluster.device, silent=True))
    kept = reserved_bytes(lower(setting), 0, found.memory.allocated)
    return msgspec.structs.replace(found, memory=msgspec.structs.replace(found.memory, reserved=kept))


def _error(row: dict[str, str], found: Prediction) -> tuple[float, ...]:
    memory = found.memory
    return (
        found.step_seconds / (float(row["step_ms"]) / 1e3) - 1,
        memory.allocated / GIB / float(row["allocated_gib"]) - 1,
        memory.reserved / GIB / float(row["reserved_gib"]) - 1,
    )


if __name__ == "__main__":
    main(sys.argv[1:] or ["pytorch", "fsdp"])  # torchtitan runs no tp without sp
