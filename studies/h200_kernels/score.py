"""Kernel prices against the kernels measured here: `python studies/h200_kernels/score.py [FILE ...]`.

Predicted over measured device time, by operator, precision, layout and part: the ratio in the median, the least and the
most, how far off in the mean and the median, and the ratio of the sums. No host is in either number.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from foretell.cost.kernels import kernel_seconds, update_seconds
from foretell.hardware.members import device
from foretell.model.operator import Operator
from foretell.model.operators.attention import Attention
from foretell.model.operators.broadcast import Broadcast
from foretell.model.operators.convolution import Convolution, extent
from foretell.model.operators.cross_entropy import CrossEntropy
from foretell.model.operators.dropout import Dropout
from foretell.model.operators.elementwise import Elementwise
from foretell.model.operators.embedding import Embedding
from foretell.model.operators.matmul import Matmul
from foretell.model.operators.normalization import Normalize
from foretell.model.operators.pooling import Pool
from foretell.model.operators.reduction import Reduce
from foretell.model.operators.softmax import Softmax
from foretell.model.optimizer import update_rule
from foretell.plan.policies.precision import FORMATS, Format
from foretell.plan.trainer import Trainer, trainer
from foretell.program.action import Compute, Update

HERE = Path(__file__).parent
FILES = ("products", "convolutions", "attention", "norms", "memory", "losses", "optimizers")
PYTORCH = trainer("pytorch")
H200 = device("h200")
FORMS: dict[str, Format] = {
    "fp32": FORMATS["fp32"],
    "tf32": FORMATS["tf32"],
    "bf16": FORMATS["bf16:pure"],
    "fp16": msgspec.structs.replace(FORMATS["bf16:pure"], activation="fp16", kernels="fp16", other_kernels="fp16"),
}
WIDTHS = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2}
Line = dict[str, Any]


class Case(NamedTuple):
    """An operator, the sizes of its loops, and the operands that it has."""

    operator: Operator
    sizes: dict[str, int]
    operands: tuple[str, ...]
    wide: tuple[str, ...] = ()  # operands in fp32 whatever the precision
    density: float = 1.0


def convolution(line: Line) -> Case:
    space = line["space"]
    side = extent(line["image"], line["kernel"], line["stride"], line["padding"])
    names = ("depth", "height", "width")[-space:]
    groups = line["groups"]
    sizes = {"sample": line["batch"], "group": groups, "in": line["in"] // groups, "out": line["out"] // groups}
    operator = Convolution(*((line[key],) * space for key in ("kernel", "stride", "padding")), (1,) * space)
    return Case(operator, {**sizes, **dict.fromkeys(names, side)}, ("x", "w", "y"))


def matmul(line: Line) -> Case:
    return Case(Matmul(), {key: line[key] for key in ("batch", "row", "in", "out")}, ("x", "w", "y"))


def attention(line: Line) -> Case:
    sizes = {
        "sample": line["sample"],
        "kv_head": line["head"],
        "share": 1,
        "query": line["sequence"],
        "key": line["sequence"],
        "qk": line["size"],
        "value": line["size"],
    }
    if line["kernel"] == "math":
        operator = Attention("math", dropout=True, fixed_bias=True)
        return Case(operator, sizes, ("q", "k", "v", "bias", "y"))
    operator = Attention("flash" if WIDTHS[line["precision"]] == 2 else "efficient", causal=line["causal"])
    return Case(operator, sizes, ("q", "k", "v", "y"), density=float(operator.density(sizes)))


def normalized(kind: str) -> Callable[[Line], Case]:
    def case(line: Line) -> Case:
        if "wide" in line:
            sizes = {"group": line["row"], "member": line["wide"], "affine": line["wide"]}
            return Case(Normalize(kind), sizes, ("x", "w", "b", "y") if kind == "layer" else ("x", "w", "y"))
        sample, channel, area = line["sample"], line["channel"], line["side"] ** 2
        group, member = {
            "batch": (channel, sample * area),
            "group": (sample * 32, channel // 32 * area),
            "instance": (sample * channel, area),
        }[kind]
        return Case(
            Normalize(kind), {"group": group, "member": member, "affine": channel}, ("x", "w", "b", "y"), ("w", "b")
        )

    return case


def pool(function: str, kernel: int, stride: int) -> Callable[[Line], Case]:
    def case(line: Line) -> Case:
        side = -(-line["side"] // stride)
        sizes = {"sample": line["sample"], "channel": line["channel"], "height": side, "width": side}
        return Case(Pool(function, (kernel,) * 2, (stride,) * 2), sizes, ("x", "y"))

    return case


def function(name: str, *operands: str) -> Callable[[Line], Case]:
    return lambda line: Case(Elementwise(name), {"item": line["elements"]}, operands or ("x", "y"))


CASES: dict[str, Callable[[Line], Case]] = {
    "convolution": convolution,
    "matmul": matmul,
    "attention": attention,
    "batch_norm": normalized("batch"),
    "group_norm": normalized("group"),
    "instance_norm": normalized("instance"),
    "layer_norm": normalized("layer"),
    "rms_norm": normalized("rms"),
    "max_pool": pool("max", 3, 2),
    "average_pool": pool("average", 2, 2),
    "mean_pool": lambda line: Case(
        Reduce(), {"kept": line["sample"] * line["channel"], "reduced": line["side"] ** 2}, ("x", "y")
    ),
    "softmax": lambda line: Case(Softmax(), {"row": line["row"], "class": line["wide"]}, ("x", "y")),
    "cross_entropy": lambda line: Case(CrossEntropy(), {"row": line["row"], "class": line["class"]}, ("x", "t", "y")),
    "embedding": lambda line: Case(
        Embedding(), {"row": line["row"], "vocab": line["vocab"], "feature": line["wide"]}, ("x", "w", "y")
    ),
    "dropout": lambda line: Case(Dropout(), {"item": line["elements"]}, ("x", "y")),
    "multiply": function("multiply", "x", "z", "y"),
    "add": function("add", "x", "y"),
    "clone": function("copy"),
    "transpose": function("copy"),
    "swap_middle": function("copy"),
    "fill": function("fill", "y"),
    "cat": function("copy"),
    "sum_rows": lambda line: Case(
        Reduce("sum"), {"kept": min(1024, line["elements"]), "reduced": max(1, line["elements"] // 1024)}, ("x", "y")
    ),
    "scale_channels": lambda line: Case(
        Broadcast("multiply"), {"item": max(64, line["elements"] // 64), "repeat": 64}, ("x", "z", "y")
    ),
    **{name: function(name) for name in ("relu", "gelu", "gelu_tanh", "silu", "sigmoid", "hardswish")},
}


def seconds(line: Line, device_: Any = H200, runs: Trainer = PYTORCH) -> float | None:
    """What the kernels of a line are said to take; nothing for those that no operator stands for."""
    form = FORMS[line["precision"]]
    if line["op"] == "optimizer":
        if line["way"] == "for-loop":
            return None
        cost = update_rule(line["rule"]).cost(line["elements"], dict.fromkeys("wgs", form.weight))
        if line["way"] == "fused":
            form = msgspec.structs.replace(form, master=4)  # a trainer with a master copy brings a fused kernel
        return update_seconds(Update(line["rule"], line["elements"], cost), device_, form).seconds
    if line["op"] not in CASES:
        return None
    case = CASES[line["op"]](line)
    width: dict[str, int] = dict.fromkeys(case.operands, WIDTHS[line["precision"]])
    width.update(dict.fromkeys(case.wide, 4))
    if line["op"] == "cross_entropy":
        if line["cast"]:
            width["x"] = 4  # the graph has the cast as an operator
        width["t"] = 8
    if line["op"] == "embedding":
        width["x"] = 8
    parts = {"backward": ("input_gradient", "weight_gradient")}.get(line["part"], (line["part"],))
    if line.get("layout") == "last":
        runs = trainer("pytorch-channels-last")
    total = 0.0
    tag = str(type(case.operator).__struct_config__.tag)
    for part in parts:
        cost = case.operator.part(part, case.sizes, width)
        if cost.launches or cost.read:
            action = Compute("layers.0", tag, part, case.sizes, cost, density=case.density)
            total += float(kernel_seconds(action, device_, form, runs).seconds)
    if line["op"] == "cross_entropy" and line["cast"]:
        cast = Elementwise("cast").part(parts[0], {"item": line["row"] * line["class"]}, {"x": 2, "y": 4})
        total += float(kernel_seconds(Compute("loss", "elementwise", parts[0], {}, cast), device_, form, runs).seconds)
    return total or None


def lines(name: str) -> Iterator[Line]:
    with (HERE / f"{name}.jsonl").open() as file:
        for text in file:
            line = json.loads(text)
            if "failed" not in line:
                yield line


def key(line: Line) -> tuple[str, ...]:
    op = line["op"]
    extra = ""
    if op == "convolution":
        extra = _window(line)
    if op == "attention":
        extra = line["kernel"]
    if op == "optimizer":
        extra = f"{line['rule']} {line['way']}"
    if op == "cross_entropy" and line["cast"]:
        extra = "cast"
    return op, extra, line["precision"], line.get("layout", ""), line.get("part", "")


def _window(line: Line) -> str:
    if line["space"] > 2:
        return "3-D"
    if line["groups"] > 1:
        return "depthwise" if line["groups"] == line["in"] else "grouped"
    return f"{line['kernel']}x{line['kernel']}" if line["kernel"] in (1, 3) else "other"


def report(names: list[str]) -> Iterator[str]:
    head = "".join(f"{word:>7}" for word in ("rows", "ratio", "least", "most", "mean", "median", "total"))
    yield f"{'operator':<16}{'':<18}{'':<6}{'':<7}{'part':<16}{head}"
    for name in names:
        found: dict[tuple[str, ...], list[tuple[float, float]]] = defaultdict(list)
        for line in lines(name):
            said = seconds(line)
            if said is not None and not math.isnan(said):
                found[key(line)].append((said * 1e6, line["device_us"]))
        for words, pairs in sorted(found.items()):
            ratios = [said / real for said, real in pairs]
            off = [abs(ratio - 1) for ratio in ratios]
            op, extra, word, layout, part = words
            total = sum(said for said, _ in pairs) / sum(real for _, real in pairs)
            spread = "".join(f"{ratio:>7.2f}" for ratio in (statistics.median(ratios), min(ratios), max(ratios)))
            errors = "".join(f"{error:>7.0%}" for error in (statistics.mean(off), statistics.median(off)))
            yield f"{op:<16}{extra:<18}{word:<6}{layout:<7}{part:<16}{len(pairs):>7}{spread}{errors}{total:>7.2f}"


if __name__ == "__main__":
    print("\n".join(report(sys.argv[1:] or list(FILES))))
