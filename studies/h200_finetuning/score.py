"""Predicted against measured fine-tuning steps: `python studies/h200_finetuning/score.py [as=hf] [WORD ...]`.

`calibration=FILE`: as a machine was measured (`foretell calibrate`), and not as it is known of its kind.

Each case is asked of `predict` as its users would: the model by its `config.json`, the plan by words, plain PyTorch, no
calibration. Printed: the step, its kernels, memory allocated, joules; both halves apart. What no plan says (padded
and packed rows, heads for classes) is left out, and told. `as=hf`: not the zoo's modules, but transformers' own.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cases import MODELS

from foretell.cost.price import priced
from foretell.errors import BadInput
from foretell.oracle.energy import step_energy
from foretell.oracle.predicted import predicted
from foretell.oracle.request import read

HERE = Path(__file__).parent
ARCHITECTURES = {
    "llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM", "gemma2": "Gemma2ForCausalLM", "olmoe": "OlmoeForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
}  # fmt: skip
Row = dict[str, Any]


class Told(NamedTuple):
    """What was predicted of a case."""

    step: float
    computing: float
    allocated: float
    joules: float


def configuration(model: str, folder: Path) -> str:
    """The model's `config.json`, as its checkpoint has it."""
    fields = dict(MODELS[model])
    kind = fields.pop("type")
    file = folder / f"{model}.json"
    file.write_text(json.dumps({"model_type": kind, "architectures": [ARCHITECTURES[kind]], **fields}))
    return str(file)


def plan_of(row: Row) -> str:
    words = ["dp1", "+amp_bf16" if row["autocast"] else "+bf16:pure"]
    words += ["+recompute:block"] if row["checkpointing"] else []
    if row["method"] != "full":
        words += [f"+lora{row['rank']}", "+adapt:attention" if row["targets"] == "attention" else ""]
        words += ["+fp32-adapters"] if row["adapter"] == "fp32" else []
        words += ["+nf4-dq"] if row["base"].startswith("nf4") else []
    return " ".join(word for word in words if word)


def why_not(row: Row) -> str:
    """Why no plan says what ran; empty where one does."""
    if MODELS[row["model"]]["type"] not in ARCHITECTURES:
        return "a head for classes, and no causal loss"
    if row["mask"] in ("padded", "packed"):
        return "rows that are padded or packed"
    if row["autocast"] and row["method"] != "full":
        return "autocast over 16-bit or packed weights"
    return "scores that are stored" if row["attention"] == "eager" else ""


def told(row: Row, folder: Path, reader: str, calibration: str = "none") -> Told:
    asked, found = predicted(
        read(
            model=f"{configuration(row['model'], folder)}{reader}",
            on="1xh200",
            plan=plan_of(row),
            batch=row["batch"],
            seq=row["length"],
            optimizer="adamw",
            calibration=calibration,
        )
    )
    energy = step_energy(priced(asked.setting, asked.place), found)
    computing = sum(found.breakdown.get(part, 0.0) for part in ("forward", "backward", "recompute", "optimizer"))
    return Told(found.step_seconds, computing, found.memory.allocated, energy.joules if energy else 0.0)


def scored(only: list[str], reader: str, calibration: str = "none") -> Iterator[tuple[Row, Told | str]]:
    with tempfile.TemporaryDirectory() as folder:
        for line in (HERE / "measured.jsonl").read_text().splitlines():
            row = json.loads(line)
            if row["group"] != "step" or row["outcome"] != "ok" or not all(word in row["id"] for word in only):
                continue
            reason = why_not(row)
            try:
                yield row, reason or told(row, Path(folder), f":as={reader}" if reader else "", calibration)
            except BadInput as refused:
                yield row, f"refused: {refused}"


def main(words: list[str]) -> None:
    reader = next((word.removeprefix("as=") for word in words if word.startswith("as=")), "")
    files = [word.removeprefix("calibration=") for word in words if word.startswith("calibration=")]
    only = [word for word in words if not word.startswith(("as=", "calibration="))]
    errors: dict[str, list[tuple[float, ...]]] = {"seen": [], "set aside": []}
    print(f"{'':>10}{'step':>9}{'said':>9}{'':8}{'kernels':>9}{'said':>9}{'':8}{'memory':>8}{'joules':>8}")
    for row, found in scored(only, reader, *files):
        half = "set aside" if row["set_aside"] else "seen"
        if isinstance(found, str):
            print(f"{half:10}{row['step_ms']:>6.0f} ms  {found[:60]}: {row['id']}")
            continue
        off = (
            found.step * 1e3 / row["step_ms"] - 1,
            found.computing * 1e3 / row["kernels_ms"] - 1,
            found.allocated / row["peak_bytes"] - 1,
            found.joules / row["joules"] - 1,
        )
        errors[half].append(off)
        said = f"{row['step_ms']:>6.0f} ms{found.step * 1e3:>6.0f} ms{off[0]:>+8.1%}{row['kernels_ms']:>6.0f} ms"
        print(
            f"{half:10}{said}{found.computing * 1e3:>6.0f} ms{off[1]:>+8.1%}{off[2]:>+8.1%}{off[3]:>+8.1%}  {row['id']}"
        )
    for half, rows in errors.items():
        if rows:
            medians = [f"{statistics.median(abs(off) for off in column):.1%}" for column in zip(*rows, strict=True)]
            print(f"{half}: {len(rows)} steps, median error of step, kernels, memory, joules: {', '.join(medians)}")


if __name__ == "__main__":
    main(sys.argv[1:])
