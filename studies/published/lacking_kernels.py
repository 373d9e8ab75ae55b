"""Runs of containers that lack kernels, predicted without words for it and with them (`plan/lacking.py`).

`python studies/published/lacking_kernels.py FOLDER [RUNS]`: FOLDER has the sheets (*.xlsx, with folders below) of
github.com/Aleph-Alpha/NeurIPS-WANT-submission-efficient-parallelization-layouts (Hagemann et al. 2023, arXiv
2311.05610), which may be used for nothing commercial, so they are not here. LLaMA 13B, 30B and 65B on 32 to 256 A100,
Megatron-LM's plans; what the sheets leave out (batches of 2,048 and 512 samples, a vocabulary of 128,000, shares of
states) is worked out from their utilisation. No constant was chosen on these runs.
"""

from __future__ import annotations

import re
import statistics
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import foretell
from foretell.cli.table import table
from foretell.errors import ForetellError

SHEET = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
SHAPES = {"13B": (40, 5120, 40, 13824), "30B": (60, 6656, 52, 17920), "65B": (80, 8192, 64, 22016)}
BATCHES = {2048: 2048, 8192: 512}
TRAINER = "megatron-lm-2023"
WORDS = {
    "flash_attention2 + RMS kernel": "",
    "flash_attention2": ":without=norms",
    "flash_attentionv1.0.8": ":without=norms",
    "fused": ":without=norms+attention",
    "torch": ":without=norms+softmax",
}
Row = dict[str, str]


def rows(path: Path) -> Iterator[Row]:
    """The lines of a sheet that were timed."""
    with zipfile.ZipFile(path) as book:
        texts = [
            "".join(part.text or "" for part in one.iter(f"{SHEET}t"))
            for one in ElementTree.fromstring(book.read("xl/sharedStrings.xml"))
        ]
        sheet = ElementTree.fromstring(book.read("xl/worksheets/sheet1.xml"))
    header: Row = {}
    for line in sheet.iter(f"{SHEET}row"):
        cells: Row = {}
        for cell in line:
            value = cell.find(f"{SHEET}v")
            if value is not None and value.text:
                column = re.sub(r"[0-9]", "", cell.get("r", ""))
                cells[column] = texts[int(value.text)] if cell.get("t") == "s" else value.text
        if "Trial ID" in cells.values():
            header = cells
        elif header:
            yield {header[at]: value for at, value in cells.items() if at in header}


def step(row: Row, size: str, length: int, trainer: str) -> float:
    layers, hidden, heads, wide = SHAPES[size]
    gpus, tp, pp, micro = (
        int(row[key]) for key in ("World Size", "model_parallel_size", "pipe_parallel_size", "micro_batch_size")
    )
    dp = gpus // (tp * pp)
    shares = ":sp" if row.get("sequence_parallel") == "1" and tp > 1 else ""
    again = "+recompute:block " if row["activation_checkpointing_type"] == "every_layer" else ""
    plan = f"pp{pp}:1f1b dp{dp}:zero1 tp{tp}{shares} +m{BATCHES[length] // (dp * micro)} {again}+bf16"
    model = (
        f"llama:layers={layers},hidden={hidden},heads={heads},kv_heads={heads},ffn={wide},vocab=128000,"
        f"seq={length},tied=false,attention=flash,dtype=bf16"
    )
    plan = " ".join(word for word in plan.split() if word not in ("pp1:1f1b", "tp1", "+m1"))
    return foretell.predict(model, f"{gpus}xa100-80", plan, BATCHES[length], trainer=trainer).step_seconds


def main(folder: Path, most: int) -> None:
    found: dict[tuple[str, str], list[tuple[Row, str, int]]] = {}
    for path in sorted(folder.rglob("*.xlsx")):
        size, length = next(size for size in SHAPES if size in path.name), 8192 if "8k" in path.name else 2048
        for row in rows(path):
            if row.get("kernel") in WORDS and re.fullmatch(r"[0-9.]+", row.get("Average Step Time", "")):
                key = row["kernel"], row["activation_checkpointing_type"]
                found.setdefault(key, []).append((row, size, length))
    lines: list[list[str]] = []
    for (kernel, again), own in sorted(found.items()):
        told: dict[str, list[float]] = {}
        count = min(most, len(own))
        for row, size, length in (own[at * len(own) // count] for at in range(count)):
            try:
                ratios = [
                    step(row, size, length, TRAINER + word) / float(row["Average Step Time"])
                    for word in ("", WORDS[kernel])
                ]
            except ForetellError:  # stages that do not divide the layers
                continue
            for word, ratio in zip(("plain", "words"), ratios, strict=True):
                told.setdefault(word, []).append(ratio)
        off = [
            f"{value:.{digits}f}"
            for word in told.values()
            for value, digits in (
                (statistics.median(word), 2),
                (100 * statistics.fmean(abs(ratio - 1) for ratio in word), 1),
            )
        ]
        words = "recomputed" if again == "every_layer" else "saved"
        name = kernel.replace("flash_attention", "flash ").replace("v1.0.8", "1").replace(" kernel", "")
        lines.append([f"{name}, {words}", f"{len(own)}", f"{len(told['plain'])}", *off])
    print(table(["kernels", "runs", "tried", "over measured", "off, %", "with words", "off, %"], lines))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10_000)
