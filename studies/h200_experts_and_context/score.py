"""Kernel prices against what was measured here: `python studies/h200_experts_and_context/score.py [GROUP ...]`.

Predicted over measured time by kind of kernel: the half that constants were chosen on, and the half set aside that
judges. Skewed loads are priced as even ones, which is all that a plan knows of them.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from foretell.cost.compressing import KERNELS, ORTHOGONAL, OWED, START
from foretell.cost.kernels import kernel_seconds, memory_rate
from foretell.hardware.members import device
from foretell.model.operator import Operator
from foretell.model.operators.attention import Attention
from foretell.model.operators.broadcast import Broadcast
from foretell.model.operators.elementwise import Elementwise
from foretell.model.operators.experts import Gather, GroupedMatmul, ScatterAdd, Sort, TopK
from foretell.model.operators.matmul import Matmul
from foretell.model.operators.softmax import Softmax
from foretell.plan.policies.precision import FORMATS
from foretell.plan.trainer import Trainer, trainer
from foretell.program.action import Compute

MEASURED = Path(__file__).with_name("measured.jsonl")
AROUND = Path(__file__).with_name("around.jsonl")
H200 = device("h200")
PYTORCH = trainer("pytorch")
BF16 = FORMATS["bf16:pure"]
EVENTS = 0.0022
"""Milliseconds that two events measure around a kernel besides it: the smallest calls here take 4.1 us, where the
profiler sees 1.9 of such kernels (studies/h200_kernels)."""
SECOND = msgspec.structs.replace(PYTORCH, attention=msgspec.structs.replace(PYTORCH.attention, kernel="flash2"))
"""PyTorch's own fused kernel, which it takes where cuDNN's is not asked for: FlashAttention-2."""
Row = dict[str, Any]


def one(
    operator: Operator,
    part: str,
    sizes: dict[str, int],
    widths: dict[str, int],
    density: float = 1.0,
    runs: Trainer = PYTORCH,
) -> float:
    """Milliseconds that one part of an operator is said to take."""
    tag = str(type(operator).__struct_config__.tag)
    cost = operator.part(part, sizes, widths)
    action = Compute("layers.0", tag, part, sizes, cost, density=density)
    return float(kernel_seconds(action, H200, BF16, runs).seconds) * 1e3


def attention(row: Row) -> float | None:
    if row["backend"] == "flex":
        return None
    query, key = row["query"], row["key"]
    sizes = {"sample": row["batch"], "kv_head": row["kv_heads"], "share": row["heads"] // row["kv_heads"]}
    sizes |= {"query": query, "key": key, "qk": row["size"], "value": row["size"]}
    operator = Attention("flash", causal=row["causal"])
    density = float(operator.density(sizes))
    if row["form"] == "documents":
        density = sum(length * length for length in row["documents"]) / 2 / (query * key)
    part = {"forward": "forward", "backward": "input_gradient"}[row["part"]]
    runs = PYTORCH if row["backend"] == "cudnn" else SECOND
    return one(operator, part, sizes, dict.fromkeys(("q", "k", "v", "y"), 2), density, runs)


def experts(row: Row) -> float | None:
    if row["precision"] != "bf16":
        return None
    rows, count, ins, outs = row["rows"], row["experts"], row["in"], row["out"]
    widths = dict.fromkeys(("x", "w", "y"), 2)
    if row["way"] == "grouped":
        sizes = {"expert": count, "row": sum(rows), "in": ins, "out": outs}
        return one(GroupedMatmul(), row["part"], sizes, {**widths, "offsets": 4})
    if row["way"] == "padded":
        return one(Matmul(), row["part"], {"batch": count, "row": max(rows), "in": ins, "out": outs}, widths)
    each = ({"batch": 1, "row": own, "in": ins, "out": outs} for own in rows if own)
    return sum(one(Matmul(), row["part"], sizes, widths) for sizes in each)


def permutation(row: Row) -> float | None:
    tokens, hidden, visits, classes = (row[key] for key in ("tokens", "hidden", "visits", "experts"))
    rows = tokens * visits
    moved = {"source": tokens, "row": rows, "feature": hidden}
    wide = {"item": rows * hidden}
    two, scores = {"x": 2, "y": 2}, {"x": 4, "y": 4}
    calls: dict[str, Callable[[], float]] = {
        "softmax": lambda: one(Softmax(), "forward", {"row": tokens, "class": classes}, scores),
        "sigmoid": lambda: one(Elementwise("sigmoid"), "forward", {"item": tokens * classes}, scores),
        "topk": lambda: one(TopK(), "forward", {"row": tokens, "class": classes, "chosen": visits}, scores),
        "argsort_stable": lambda: one(Sort(), "forward", {"row": rows}, {"x": 8, "y": 8}),
        "index_select": lambda: one(Gather(), "forward", moved, {**two, "index": 8}),
        "index_add": lambda: one(Gather(), "input_gradient", moved, {**two, "index": 8}),
        "scatter_add": lambda: one(
            ScatterAdd(), "forward", {"row": rows, "target": tokens, "feature": hidden}, {**two, "index": 8}
        ),
        "weigh": lambda: one(Broadcast("multiply"), "forward", {"item": rows, "repeat": hidden}, {**two, "z": 2}),
        "silu_multiply": lambda: (
            one(Elementwise("silu"), "forward", wide, two)
            + one(Elementwise("multiply"), "forward", wide, {**two, "z": 2})
        ),
    }
    return calls[row["op"]]() if row["op"] in calls else None


def merges(row: Row) -> float | None:
    """What a trainer's constants say of a turn of PyTorch's ring (`rotation`)."""
    words = {"merge": "forward", "merge compiled": "forward-compiled", "add half": "backward"}
    if row["op"] not in words:
        return None
    moved = dict(trainer("fsdp").rotation.merged)[words[row["op"]]] * row["numbers"]
    return moved / memory_rate(H200) * 1e3


def compression(row: Row) -> float | None:
    """Writing and reading, each by itself; PowerSGD's orthogonal factors are in what is written."""
    name, _, part = row["op"].partition(" ")
    if name not in KERNELS or part not in ("", "read"):
        return None
    known, numbers = KERNELS[name], row["rows"] * row["columns"]
    if part:
        return (known.read * numbers / memory_rate(H200) + START) * 1e3
    owed = OWED if name in ("topk", "powersgd") else 0.0  # which is timed by itself
    first, column = ORTHOGONAL if name == "powersgd" else (0.0, 0.0)
    extra = (known.kernels - 1) * START + first + column * row.get("rank", 0)
    return ((known.write - owed) * numbers / memory_rate(H200) + extra) * 1e3


GROUPS: dict[str, Callable[[Row], float | None]] = {
    "attention": attention,
    "experts": experts,
    "permutation": permutation,
    "merges": merges,
    "compression": compression,
}


def kind(row: Row) -> str:
    if row["group"] == "attention":
        return f"attention {row['backend']} {row['form']} heads of {row['size']}"
    if row["group"] == "experts":
        many = "to 128" if row["tokens"] <= 128 else "to 1024" if row["tokens"] <= 1024 else "more"
        return f"experts {row['way']} {many} {row['load'] if row['way'] == 'grouped' else ''}".strip()
    return f"{row['group']} {row['op']}"


def rated(names: list[str]) -> Iterator[tuple[Row, float]]:
    """Each row with predicted over measured."""
    for text in [line for file in (MEASURED, AROUND) for line in file.read_text().splitlines()]:
        row = json.loads(text)
        if row["group"] in names and "failed" not in row:
            said = GROUPS[row["group"]](row)
            if said is not None:
                yield row, said / (row["ms"] - EVENTS)


def report(names: list[str]) -> Iterator[str]:
    ratios: dict[str, dict[str, dict[str, list[float]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for row, ratio in rated(names):
        half = "set aside" if row["set_aside"] else "seen"
        for name in (kind(row), f"all of {row['group']}"):
            ratios[name][row.get("part", "")][half].append(ratio)
    yield f"{'':48}{'seen':>20}{'set aside':>22}"
    yield f"{'':48}{'rows ratio error':>20}{'rows ratio error':>22}"
    for name, parts in sorted(ratios.items()):
        for part, halves in sorted(parts.items()):
            told = ""
            for half in ("seen", "set aside"):
                own = halves.get(half, [])
                error = statistics.median(abs(ratio - 1) for ratio in own) if own else math.nan
                told += f"{len(own):>8}{statistics.median(own) if own else math.nan:>6.2f}{error:>6.0%}  "
            yield f"{name:<33}{part:<15}{told}"


if __name__ == "__main__":
    print("\n".join(report(sys.argv[1:] or list(GROUPS))))
