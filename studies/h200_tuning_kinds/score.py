"""Predicted against measured steps of other kinds: `python studies/h200_tuning_kinds/score.py [as=hf]`.

Models by their `config.json`, plans by words, plain PyTorch, no calibration; DPO and reward models by `align`.
"""

from __future__ import annotations

import importlib.util
import json
import math
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from foretell.errors import BadInput
from foretell.oracle.alignment import aligned
from foretell.oracle.alignment_question import AlignmentQuestion
from foretell.oracle.predicted import predicted
from foretell.oracle.request import read

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "h200_finetuning"))
_SPEC = importlib.util.spec_from_file_location("finetuning_score", HERE.parent / "h200_finetuning" / "score.py")
assert _SPEC is not None and _SPEC.loader is not None
FINETUNING = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(FINETUNING)
Row = dict[str, Any]


class Told(NamedTuple):
    """What was predicted of a case."""

    step: float
    bytes: float  # allocated; of pairs not told apart from what the allocator and libraries hold, so nothing


def plan_of(row: Row) -> str:
    kind = row["method"]
    words = ["dp1", "+bf16:pure", "+recompute:block" if row["checkpointing"] else ""]
    words += [f"+{kind}{row['tokens']}"] if kind in ("prompt", "prefix") else []
    words += [f"+train:last{row['layers']}"] if kind == "last" else []
    words += [f"+lora{row['rank']}"] if row["rank"] else []
    words += ["+dora"] if kind == "dora" else []
    words += ["+fp32-adapters"] if row["adapter"] == "fp32" else []
    return " ".join(word for word in words if word)


def told(row: Row, folder: Path, reader: str) -> Told:
    """A step; a row's `length` has a prompt's tokens in it, which `--seq` counts."""
    kind = row["method"]
    seq = row["length"] + (row["tokens"] if kind == "prompt" else 0)
    pairs = kind.startswith("dpo") or kind == "reward"
    asked = read(
        model=f"{FINETUNING.configuration(row['model'], folder)}{reader}",
        on="1xh200",
        plan=plan_of(row),
        batch=row["batch"] // (2 if pairs else 1),
        seq=seq,
        optimizer="adamw",
        calibration="none",
    )
    if not pairs:
        found = predicted(asked)[1]
        return Told(found.step_seconds, found.memory.allocated)
    step = aligned(AlignmentQuestion(request=asked, method="reward" if kind == "reward" else "dpo")).way
    return Told(step.step_seconds, math.nan)


def main(reader: str) -> None:
    errors: dict[str, list[tuple[float, float]]] = {"seen": [], "set aside": []}
    with tempfile.TemporaryDirectory() as folder:
        for line in (HERE / "measured.jsonl").read_text().splitlines():
            row = json.loads(line)
            if row.get("outcome") != "ok":
                continue
            half = "set aside" if row["set_aside"] else "seen"
            try:
                found = told(row, Path(folder), reader)
            except BadInput as refused:
                print(f"{half:10}refused: {str(refused)[:70]}: {row['id']}")
                continue
            off = found.step * 1e3 / row["step_ms"] - 1, found.bytes / row["peak_bytes"] - 1
            errors[half].append(off)
            said = f"{row['step_ms']:>6.0f} ms{found.step * 1e3:>6.0f} ms{off[0]:>+8.1%}"
            held = f"{row['peak_bytes'] / 2**30:>7.1f}{found.bytes / 2**30:>7.1f} GiB{off[1]:>+8.1%}"
            print(f"{half:10}{said}{held}  {row['id']}")
    for half, rows in errors.items():
        if rows:
            time, memory = (
                statistics.median(abs(off) for off in column if not math.isnan(off))
                for column in zip(*rows, strict=True)
            )
            print(f"{half}: {len(rows)} steps, median error of step and memory: {time:.1%}, {memory:.1%}")


if __name__ == "__main__":
    main(f":{sys.argv[1]}" if len(sys.argv) > 1 else "")
