"""One or more instances of every operator, with loop sizes to try them at."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from foretell.model.attention import ATTENTIONS
from foretell.model.operator import Operator
from foretell.model.operators import operators
from foretell.model.operators.elementwise import FUNCTIONS
from foretell.model.operators.recurrent import GATES


class Instance(NamedTuple):
    operator: Operator
    sizes: dict[str, int]
    operands: tuple[str, ...]  # besides y

    @property
    def widths(self) -> dict[str, int]:
        return {**dict.fromkeys(self.operands, 4), "y": 4}


def _add_the_small_ones(add: Callable[..., None]) -> None:
    """Operators with few choices."""
    add("view", {"item": 12}, "x")
    add("concatenate", {"item": 12}, "x")
    add("pad", {"item": 12}, "x")
    add("dropout", {"item": 12}, "x")
    add("stochastic_depth", {"sample": 3, "item": 12}, "x")
    add("squared_error", {"item": 12}, "x t")
    for log in (False, True):
        add("softmax", {"row": 4, "class": 10}, "x", log=log)
    add("cross_entropy", {"row": 4, "class": 10}, "x t")
    add("embedding", {"row": 4, "vocab": 10, "feature": 6}, "x w")
    for partial in (False, True):
        sizes = {"row": 6, "position": 5, "feature": 8, "angle": 2 if partial else 4}
        add("rotary", sizes, "x cos sin", partial=partial)
    for operands in ("x w", "x w offsets"):
        add("grouped_matmul", {"row": 8, "expert": 4, "in": 6, "out": 10}, operands)
    add("scatter_add", {"target": 8, "row": 12, "feature": 6}, "x index")
    add("put", {"kept": 3, "row": 4, "target": 8}, "x index")
    add("sort", {"row": 12}, "x")
    add("histogram", {"row": 12, "class": 4}, "x")
    add("cumulative", {"row": 3, "place": 8}, "x")
    add("bounds", {"row": 12, "expert": 4}, "x")
    add("gather", {"source": 8, "row": 12, "feature": 6}, "x index")
    add("top_k", {"row": 8, "class": 6, "chosen": 2}, "x")
    scanned = {"sample": 2, "sequence": 8, "group": 2, "share": 3, "feature": 4, "state": 5}
    add("scan", scanned, "x dt b c a d bias", chunk=4)
    ruled = {"sample": 2, "sequence": 8, "head": 3, "key": 5, "value": 6, "place": 4}
    for operands in ("q k v dt e a bias", "q k v g e"):
        add("delta_rule", ruled, operands, chunk=4)
    add("index_scores", {"sample": 2, "query": 8, "head": 3, "key": 8, "feature": 5}, "q k g")
    for operands in ("x dt b c a d", "x dt b c z a d bias"):
        add("selective_scan", {"sample": 2, "sequence": 8, "channel": 6, "state": 4}, operands)
    add("short_convolution", {"sample": 2, "sequence": 8, "channel": 6, "tap": 4}, "x w b")
    add("unknown", {"read": 20, "item": 12}, "x", name="custom.op")


def _all() -> list[Instance]:
    made = operators()
    space = {"depth": 3, "height": 4, "width": 5}
    found: list[Instance] = []

    def add(tag: str, sizes: dict[str, int], operands: str, **fields: object) -> None:
        found.append(Instance(made[tag](**fields), sizes, tuple(operands.split())))

    for operands in ("x w", "x w b"):
        add("matmul", {"batch": 2, "row": 8, "in": 16, "out": 12}, operands)
    for transposed in (False, True):
        for count in (1, 2, 3):
            sizes = {"sample": 2, "group": 2, "in": 4, "out": 6, **dict(list(space.items())[-count:])}
            add(
                "convolution", sizes, "x w b", kernel=(3,) * count, stride=(2,) * count, padding=(1,) * count,
                dilation=(1,) * count, transposed=transposed,
            )  # fmt: skip
    heads = {"sample": 2, "kv_head": 2, "share": 3, "query": 8, "key": 16, "qk": 4, "value": 6}
    for kernel in ATTENTIONS:
        index = {"chosen": 4} if kernel == "sparse" else {}
        told = "q k v index" if index else "q k v"
        add("attention", {**heads, **index}, told, kernel=kernel, causal=True, window=4)
        add("attention", {**heads, **index}, told, kernel=kernel, dropout=True)
    add("attention", heads, "q k v sink", kernel="local", causal=True, window=4, capped=True)
    for function in FUNCTIONS:
        add("elementwise", {"item": 24}, "x", function=function)
    for function in ("add", "multiply", "divide"):
        add("elementwise", {"item": 24}, "x z", function=function)
    for function in ("add", "multiply", "prelu"):
        for operands in ("x z", "x w"):
            add("broadcast", {"item": 6, "repeat": 8}, operands, function=function)
    for kind in ("layer", "rms", "batch", "group", "instance"):
        add("normalize", {"group": 6, "member": 8, "affine": 8}, "x w b", kind=kind)
    image = {"sample": 2, "channel": 3, "height": 4, "width": 4}
    for function in ("max", "average"):
        add("pool", image, "x", function=function, kernel=(3, 3), stride=(2, 2))
    add("upsample", image, "x", factor=(2, 2), function="bilinear")
    for cell, gates in GATES.items():
        sizes = {"sample": 2, "sequence": 5, "in": 6, "unit": 8, "gate": gates, "out": 8}
        add("recurrent", sizes, "x w u b c", cell=cell)
        add("recurrent_call", sizes, "x w u b c", cell=cell)
    for function in ("mean", "sum", "maximum"):
        add("reduce", {"kept": 4, "reduced": 8}, "x", function=function)
    _add_the_small_ones(add)
    return found


INSTANCES = _all()
