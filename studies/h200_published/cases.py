"""Published runs of FSDP on H100, as rehearsals: python studies/h200_published/cases.py > cases.jsonl

Rows of studies/published/llm_measured.csv whose plan, batch, recomputation and precision are all said, and that need
nothing which a single GPU with PyTorch alone has not (no float8, no asynchronous tensor parallelism). torchtitan's run
with torchtitan's own modules; llm-foundry's (MPT, FSDP of 2023) with the zoo's GPT under FSDP2.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PUBLISHED = Path(__file__).parent.parent / "published" / "llm_measured.csv"
DEPTHS = {"torchtitan-0019": (4, 8)}
"""Rows whose whole step would take half a minute, with the layers of two smaller models to extend from."""

IDS = (
    "torchao-001", "torchtitan-0025", "torchtitan-0019", "llm-foundry-0059", "llm-foundry-0011", "llm-foundry-0033",
)  # fmt: skip
RECOMPUTED = {"selective": " +recompute:operators", "full": " +recompute:block", "none": ""}


def cases() -> Iterator[dict[str, Any]]:
    with PUBLISHED.open() as file:
        rows = {row["id"]: row for row in csv.DictReader(file)}
    for name in IDS:
        row = rows[name]
        layers = int(row["layers"])
        for depth in DEPTHS.get(name, (layers,)):
            yield {"id": name, "layers": layers, "case": _case(row, depth)}


def _case(row: dict[str, str], depth: int) -> dict[str, Any]:
    titan = row["framework"] == "torchtitan"
    plan = f"dp{row['dp']}:zero3" + (f" tp{row['tp']}:sp" if row["tp"] != "1" else "") + " +bf16"
    plan += (" +compiled" if row["compile"] == "1" else "") + RECOMPUTED[row["act_ckpt"]]
    if titan:
        model = row["model"].lower() + (f":layers={depth}" if depth != int(row["layers"]) else "")
    else:
        words = {"layers": depth, "hidden": row["hidden"], "heads": row["heads"], "vocab": row["vocab"]}
        model = "gpt:" + ",".join(f"{key}={value}" for key, value in words.items())
    told = {"maker": "titan" if titan else "zoo", "trainer": "torchtitan" if titan else "pytorch", "model": model}
    return {**told, "plan": plan, "batch": int(row["global_batch"]), "seq": int(row["seq_len"]), "priced": True}


if __name__ == "__main__":
    for case in cases():
        print(json.dumps(case))
