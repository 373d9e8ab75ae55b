"""Kernels of one GPU, timed one by one: nothing but PyTorch and the standard library.

    python studies/h200_kernels/measure.py OUT [GROUP ...]

Writes OUT/GROUP.jsonl, a line a case, as it goes. `device_us` is the time of all kernels of one call by the profiler
(median of some calls; `samples` has each), `kernels` names them with how often each ran and its own median. Calls are
told apart by a marker kernel between them. Host groups use a clock instead.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile

CALLS, WARM, BATCH = 5, 2, 40
TYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
MARKER = "spin_kernel"


class Case(NamedTuple):
    """What is told of a case, and how a call of it is made."""

    told: dict[str, Any]
    make: Callable[[], Callable[[], Any]]


def precision(word: str) -> torch.dtype:
    torch.backends.cuda.matmul.allow_tf32 = word == "tf32"
    torch.backends.cudnn.allow_tf32 = word == "tf32"
    return TYPES[word]


def rand(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=dtype) if shape else torch.randn((), device="cuda", dtype=dtype)


def mark() -> None:
    torch.cuda._sleep(100)


def kernels_of(found: Any) -> list[tuple[str, float, int]]:
    events = [e for e in found.profiler.kineto_results.events() if e.device_type() == torch.autograd.DeviceType.CUDA]
    return sorted(((e.name(), e.duration_ns() / 1e3, e.start_ns()) for e in events), key=lambda e: e[2])


def timed(cases: Iterator[Case], write: Callable[[dict[str, Any]], None], end: float) -> None:
    """All cases in batches, one profile a batch."""
    batch: list[tuple[Case, list[float]]] = []
    while True:
        batch = []
        with profile(activities=[ProfilerActivity.CUDA]) as found:
            for case in cases:
                try:
                    call = case.make()
                    for _ in range(WARM):
                        call()
                    torch.cuda.synchronize()
                    mark()
                    start = time.perf_counter()
                    for _ in range(CALLS):
                        call()
                        mark()
                    host = (time.perf_counter() - start) / CALLS * 1e6
                    torch.cuda.synchronize()
                    mark(), mark()
                    batch.append((case, [host]))
                except Exception as problem:
                    write({**case.told, "failed": repr(problem)[:200]})
                    torch.cuda.synchronize()
                    mark(), mark(), mark(), mark()  # a case that broke off leaves no calls behind
                call = None
                if len(batch) == BATCH or time.perf_counter() > end:
                    break
            torch.cuda.synchronize()
        if batch:
            for one in read(batch, kernels_of(found)):
                write(one)
        if len(batch) < BATCH or time.perf_counter() > end:
            return


def read(batch: list[tuple[Case, list[float]]], events: list[tuple[str, float, int]]) -> Iterator[dict[str, Any]]:
    """Kernels between markers: warm-up | call | call ... | (two markers end a case)."""
    spans: list[list[tuple[str, float]]] = [[]]
    for name, length, _ in events:
        if MARKER in name:
            spans.append([])
        else:
            spans[-1].append((name, length))
    at = 0
    for case, (host,) in batch:
        # warm-up span, CALLS spans, one empty after the first of the two closing markers
        while at + 1 < len(spans) and not (spans[at] and spans[at + 1]):
            at += 1
        calls = spans[at + 1 : at + 1 + CALLS]
        at += CALLS + 1
        if len(calls) < CALLS or not all(calls):
            yield {**case.told, "failed": "markers do not add up"}
            continue
        totals = [sum(length for _, length in call) for call in calls]
        names: dict[str, list[float]] = {}
        for call in calls:
            for name, length in call:
                names.setdefault(name[:110], []).append(length)
        told = {name: [len(all_) / CALLS, round(statistics.median(all_), 2)] for name, all_ in names.items()}
        yield {
            **case.told,
            "device_us": round(statistics.median(totals), 3),
            "min_us": round(min(totals), 3),
            "samples": [round(total, 2) for total in totals],
            "host_us": round(host, 1),
            "kernels": told,
        }


# convolutions

CONVOLUTIONS: list[tuple[str, int, int, int, int, int, int, int, int]] = [
    # network, batch, in, out, image, kernel, stride, padding, groups
    ("resnet", 64, 3, 64, 224, 7, 2, 3, 1),
    ("resnet", 64, 64, 64, 56, 1, 1, 0, 1),
    ("resnet", 64, 64, 64, 56, 3, 1, 1, 1),
    ("resnet", 64, 64, 256, 56, 1, 1, 0, 1),
    ("resnet", 64, 256, 64, 56, 1, 1, 0, 1),
    ("resnet", 64, 256, 128, 56, 1, 1, 0, 1),
    ("resnet", 64, 128, 128, 56, 3, 2, 1, 1),
    ("resnet", 64, 256, 512, 56, 1, 2, 0, 1),
    ("resnet", 64, 128, 512, 28, 1, 1, 0, 1),
    ("resnet", 64, 512, 128, 28, 1, 1, 0, 1),
    ("resnet", 64, 128, 128, 28, 3, 1, 1, 1),
    ("resnet", 64, 512, 256, 28, 1, 1, 0, 1),
    ("resnet", 64, 256, 256, 28, 3, 2, 1, 1),
    ("resnet", 64, 256, 1024, 14, 1, 1, 0, 1),
    ("resnet", 64, 1024, 256, 14, 1, 1, 0, 1),
    ("resnet", 64, 256, 256, 14, 3, 1, 1, 1),
    ("resnet", 64, 512, 512, 14, 3, 2, 1, 1),
    ("resnet", 64, 512, 2048, 7, 1, 1, 0, 1),
    ("resnet", 64, 2048, 512, 7, 1, 1, 0, 1),
    ("resnet", 64, 512, 512, 7, 3, 1, 1, 1),
    ("resnet", 8, 64, 64, 56, 3, 1, 1, 1),
    ("resnet", 8, 256, 256, 14, 3, 1, 1, 1),
    ("resnet", 8, 1024, 256, 14, 1, 1, 0, 1),
    ("resnet", 256, 64, 64, 56, 3, 1, 1, 1),
    ("resnet", 256, 256, 1024, 14, 1, 1, 0, 1),
    ("vgg", 32, 3, 64, 224, 3, 1, 1, 1),
    ("vgg", 32, 64, 64, 224, 3, 1, 1, 1),
    ("vgg", 32, 64, 128, 112, 3, 1, 1, 1),
    ("vgg", 32, 128, 128, 112, 3, 1, 1, 1),
    ("vgg", 32, 256, 256, 56, 3, 1, 1, 1),
    ("vgg", 32, 256, 512, 28, 3, 1, 1, 1),
    ("vgg", 32, 512, 512, 28, 3, 1, 1, 1),
    ("vgg", 32, 512, 512, 14, 3, 1, 1, 1),
    ("alexnet", 128, 3, 64, 224, 11, 4, 2, 1),
    ("alexnet", 128, 64, 192, 27, 5, 1, 2, 1),
    ("densenet", 32, 128, 32, 56, 3, 1, 1, 1),
    ("densenet", 32, 256, 128, 28, 1, 1, 0, 1),
    ("densenet", 32, 128, 32, 14, 3, 1, 1, 1),
    ("densenet", 32, 896, 128, 14, 1, 1, 0, 1),
    ("inception", 64, 192, 96, 17, 3, 1, 1, 1),
    ("efficientnet", 64, 3, 32, 224, 3, 2, 1, 1),
    ("efficientnet", 64, 16, 96, 112, 1, 1, 0, 1),
    ("efficientnet", 64, 96, 24, 56, 1, 1, 0, 1),
    ("efficientnet", 64, 40, 240, 28, 1, 1, 0, 1),
    ("efficientnet", 64, 480, 112, 14, 1, 1, 0, 1),
    ("efficientnet", 64, 320, 1280, 7, 1, 1, 0, 1),
    ("efficientnet", 64, 32, 32, 112, 3, 1, 1, 32),
    ("efficientnet", 64, 96, 96, 112, 3, 2, 1, 96),
    ("efficientnet", 64, 144, 144, 56, 5, 2, 2, 144),
    ("efficientnet", 64, 240, 240, 28, 3, 1, 1, 240),
    ("efficientnet", 64, 672, 672, 14, 5, 1, 2, 672),
    ("convnext", 32, 96, 96, 56, 7, 1, 3, 96),
    ("convnext", 32, 384, 384, 14, 7, 1, 3, 384),
    ("convnext", 32, 3, 96, 224, 4, 4, 0, 1),
    ("convnext", 32, 96, 192, 56, 2, 2, 0, 1),
    ("vit", 32, 3, 768, 224, 16, 16, 0, 1),
    ("resnext", 64, 128, 128, 56, 3, 1, 1, 32),
    ("resnext", 64, 256, 256, 28, 3, 1, 1, 32),
    ("resnext", 64, 512, 512, 14, 3, 1, 1, 32),
    ("unet", 4, 64, 64, 256, 3, 1, 1, 1),
    ("unet", 4, 128, 64, 256, 3, 1, 1, 1),
    ("unet", 4, 512, 512, 32, 3, 1, 1, 1),
]
VOLUMES: list[tuple[str, int, int, int, int, int, int, int, int]] = [
    ("cosmoflow", 2, 4, 32, 128, 3, 1, 1, 1),
    ("cosmoflow", 4, 32, 64, 64, 3, 1, 1, 1),
    ("cosmoflow", 4, 128, 256, 16, 3, 1, 1, 1),
    ("unet3d", 2, 32, 32, 128, 3, 1, 1, 1),
    ("unet3d", 2, 64, 128, 64, 3, 2, 1, 1),
    ("unet3d", 2, 128, 128, 32, 3, 1, 1, 1),
]
FORMS = (
    ("tf32", "first"), ("fp32", "first"), ("bf16", "first"),
    ("tf32", "last"), ("bf16", "last"), ("fp32", "last"), ("fp16", "first"),
)  # fmt: skip
PARTS = ("forward", "input_gradient", "weight_gradient")


def convolutions() -> Iterator[Case]:
    for word, layout in FORMS:
        for row in [*CONVOLUTIONS, *VOLUMES]:
            if word == "fp16" and row[1] != 64:
                continue
            for part in PARTS:
                if part == "input_gradient" and row[2] <= 4:
                    continue
                yield convolution(row, 3 if row in VOLUMES else 2, word, layout, part)


def convolution(row: tuple[Any, ...], space: int, word: str, layout: str, part: str) -> Case:
    _network, batch, ins, outs, image, kernel, stride, padding, groups = row

    def make() -> Callable[[], Any]:
        kind = precision(word)
        last = torch.channels_last if space == 2 else torch.channels_last_3d
        order = last if layout == "last" else torch.contiguous_format
        x = rand(batch, ins, *[image] * space, dtype=kind).to(memory_format=order)
        w = rand(outs, ins // groups, *[kernel] * space, dtype=kind).to(memory_format=order)
        said = ([stride] * space, [padding] * space, [1] * space, False, [0] * space, groups)
        if part == "forward":
            return lambda: torch.ops.aten.convolution(x, w, None, *said)
        y = torch.ops.aten.convolution(x, w, None, *said)
        mask = [part == "input_gradient", part == "weight_gradient", False]
        return lambda: torch.ops.aten.convolution_backward(y, x, w, None, *said, mask)

    keys = ("network", "batch", "in", "out", "image", "kernel", "stride", "padding", "groups")
    told = dict(zip(keys, row, strict=True))
    return Case({"op": "convolution", **told, "space": space, "precision": word, "layout": layout, "part": part}, make)


# products

LAYERS = [
    (768, 768), (768, 2304), (768, 3072), (3072, 768), (768, 50257), (768, 30522), (1024, 1024), (1024, 4096),
    (4096, 1024), (2048, 2048), (2048, 512), (2048, 8192), (8192, 2048), (2048, 32000), (4096, 4096), (4096, 14336),
    (14336, 4096), (5120, 5120), (8192, 8192), (8192, 1024), (1600, 6400), (192, 768), (384, 1152),
]  # fmt: skip
SMALL = [(64, 2048, 1000), (256, 2048, 1000), (64, 25088, 4096), (64, 4096, 4096), (256, 784, 512), (64, 1280, 1000)]
RANDOM = [
    (1777, 3001, 911), (300, 12000, 640), (5000, 700, 2500), (12608, 768, 3072), (12608, 3072, 768), (6304, 192, 576),
    (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (200704, 96, 384), (50176, 192, 768), (100, 100, 20000),
    (131072, 256, 256), (16384, 128, 128), (8192, 8192, 8192), (3333, 4444, 5555), (32768, 640, 640), (4096, 4096, 256),
]  # fmt: skip
BATCHED = [
    # batch, row, in, out
    (192, 512, 64, 512), (192, 512, 512, 64), (96, 128, 64, 128), (96, 1024, 64, 1024), (96, 1024, 1024, 64),
    (768, 197, 64, 197), (768, 197, 197, 64), (4096, 49, 32, 49), (64, 2048, 128, 2048),
]  # fmt: skip


def products() -> Iterator[Case]:
    rows = [(tokens, ins, outs) for ins, outs in LAYERS for tokens in (1024, 4096, 16384)]
    for word in ("bf16", "tf32", "fp32"):
        most = {"bf16": 8e12, "tf32": 4e12, "fp32": 6e11}[word]
        for (tokens, ins, outs), part in product([*rows, *SMALL, *RANDOM], PARTS):
            if 2 * tokens * ins * outs <= most:
                yield linear(tokens, ins, outs, word, part)
        for sizes in BATCHED:
            yield batched(*sizes, word)


def linear(rows: int, ins: int, outs: int, word: str, part: str) -> Case:
    def make() -> Callable[[], Any]:
        kind = precision(word)
        x, w, y = rand(rows, ins, dtype=kind), rand(outs, ins, dtype=kind), rand(rows, outs, dtype=kind)
        if part == "forward":
            return lambda: F.linear(x, w)
        return (lambda: y.mm(w)) if part == "input_gradient" else (lambda: y.t().mm(x))

    told = {"op": "matmul", "batch": 1, "row": rows, "in": ins, "out": outs, "precision": word, "part": part}
    return Case(told, make)


def batched(batch: int, rows: int, ins: int, outs: int, word: str) -> Case:
    def make() -> Callable[[], Any]:
        kind = precision(word)
        x, w = rand(batch, rows, ins, dtype=kind), rand(batch, ins, outs, dtype=kind)
        return lambda: x.bmm(w)

    told = {"op": "matmul", "batch": batch, "row": rows, "in": ins, "out": outs, "precision": word, "part": "forward"}
    return Case(told, make)


# attention

ATTENTION = [
    # sample, head, sequence, head size, causal
    (16, 12, 128, 64, False), (16, 12, 512, 64, False), (8, 12, 1024, 64, True), (1, 12, 1024, 64, True),
    (64, 12, 197, 64, False), (4, 16, 1024, 64, True), (4, 32, 2048, 64, True), (2, 32, 4096, 128, True),
    (1, 32, 8192, 128, True), (1, 32, 16384, 128, True), (2, 32, 4096, 128, False), (1, 16, 2048, 128, True),
    (32, 16, 512, 64, False), (4, 20, 1024, 64, True), (1, 32, 2048, 64, True), (2, 40, 2048, 128, True),
]  # fmt: skip


def attentions() -> Iterator[Case]:
    for word, row, part in product(("bf16", "fp16", "fp32", "tf32"), ATTENTION, ("forward", "backward")):
        if word in ("fp32", "tf32") and row[2] > 4096:
            continue
        yield fused(row, word, part)
    for word, row, part in product(("bf16", "tf32", "fp32"), ATTENTION[:9], ("forward", "backward")):
        if row[2] <= 2048:
            yield written(row, word, part)


def twice(y: torch.Tensor, inputs: list[torch.Tensor]) -> Callable[[], Any]:
    gradient = torch.randn_like(y)
    return lambda: torch.autograd.grad(y, inputs, gradient, retain_graph=True)


def fused(row: tuple[Any, ...], word: str, part: str) -> Case:
    sample, head, sequence, size, causal = row

    def make() -> Callable[[], Any]:
        kind = precision(word)
        q, k, v = (
            rand(sample, sequence, head, size, dtype=kind).transpose(1, 2).requires_grad_(part != "forward")
            for _ in range(3)
        )
        if part == "forward":
            return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return twice(F.scaled_dot_product_attention(q, k, v, is_causal=causal), [q, k, v])

    keys = ("sample", "head", "sequence", "size", "causal")
    told = dict(zip(keys, row, strict=True))
    return Case({"op": "attention", "kernel": "sdpa", **told, "precision": word, "part": part}, make)


def written(row: tuple[Any, ...], word: str, part: str) -> Case:
    sample, head, sequence, size, _causal = row

    def make() -> Callable[[], Any]:
        kind = precision(word)
        q, k, v = (rand(sample, head, sequence, size, dtype=kind).requires_grad_(part != "forward") for _ in range(3))
        mask = rand(sequence, sequence, dtype=kind)

        def forward() -> torch.Tensor:
            scores = (q @ k.transpose(-1, -2)) * size**-0.5 + mask
            return F.dropout(scores.softmax(-1), 0.1) @ v

        return forward if part == "forward" else twice(forward(), [q, k, v])

    keys = ("sample", "head", "sequence", "size", "causal")
    told = dict(zip(keys, row, strict=True))
    return Case({"op": "attention", "kernel": "math", **told, "precision": word, "part": part}, make)


# memory-bound operators

POINTWISE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "hardswish": F.hardswish,
    "dropout": lambda x: F.dropout(x, 0.1),
    "add": lambda x: x + x.detach(),
    "clone": torch.clone,
}
ELEMENTS = (2**12, 2**16, 2**20, 2**22, 2**24, 2**26, 2**28)


def memory() -> Iterator[Case]:
    for elements, word in product(ELEMENTS, ("fp32", "bf16")):
        yield other("cast", elements, word)
        for name in POINTWISE:
            for part in ("forward", "backward"):
                if part == "forward" or name not in ("add", "clone"):  # their gradients are handed on: no kernel
                    yield pointwise(name, elements, word, part)
        yield other("fill", elements, word)
        yield other("multiply", elements, word)
        yield other("add_in_place", elements, word)
        yield other("transpose", elements, word)
        yield other("swap_middle", elements, word)
        yield other("sum_rows", elements, word)
        yield other("scale_channels", elements, word)
        yield other("add_bias", elements, word)
        yield other("cat", elements, word)


def pointwise(name: str, elements: int, word: str, part: str) -> Case:
    def make() -> Callable[[], Any]:
        kind = precision(word)
        x = rand(elements, dtype=kind).requires_grad_(part != "forward")
        function = POINTWISE[name]
        return (lambda: function(x)) if part == "forward" else twice(function(x), [x])

    return Case({"op": name, "elements": elements, "precision": word, "part": part}, make)


def other(name: str, elements: int, word: str) -> Case:
    def make() -> Callable[[], Any]:
        kind = precision(word)
        wide = min(1024, elements // 4)
        x = rand(elements // wide, wide, dtype=kind)
        if name == "cast":
            to = torch.bfloat16 if kind == torch.float32 else torch.float32
            return lambda: x.to(to)
        if name == "fill":
            return lambda: torch.zeros_like(x)
        if name == "multiply":
            z = torch.randn_like(x)
            return lambda: x * z
        if name == "add_in_place":
            z = torch.randn_like(x)
            return lambda: x.add_(z)
        if name == "transpose":
            return lambda: x.t().contiguous()
        if name == "swap_middle":  # heads: [sample, sequence, head, size] to [sample, head, sequence, size]
            four = x.view(-1, elements // wide // 4, wide // 64, 64) if wide >= 64 else x.view(1, -1, 4, 4)
            return lambda: four.transpose(1, 2).contiguous()
        if name == "sum_rows":
            return lambda: x.sum(0)
        if name == "scale_channels":  # squeeze and excite
            four = x.view(-1, 64, 8, 8) if elements >= 2**16 else x.view(1, 64, 8, -1)
            s = rand(four.shape[0], 64, 1, 1, dtype=kind)
            return lambda: four * s
        if name == "add_bias":
            b = rand(wide, dtype=kind)
            return lambda: x + b
        half = x.view(2, -1)
        return lambda: torch.cat([half[0], half[1]])

    return Case({"op": name, "elements": elements, "precision": word, "part": "forward"}, make)


# normalisations, softmax, pooling

IMAGES = [
    (64, 64, 112), (64, 256, 56), (64, 64, 56), (64, 512, 28), (64, 1024, 14), (64, 2048, 7), (8, 64, 112),
    (8, 256, 14), (32, 32, 14), (32, 1024, 7), (256, 256, 56), (64, 96, 112), (64, 480, 14), (64, 128, 28),
    (32, 128, 56),
]  # fmt: skip
TOKENS = [(r, h) for r, h in product((512, 4096, 16384), (768, 1024, 2048, 4096, 8192))] + [
    (12608, 768),
    (100352, 96),
    (25088, 192),
    (6272, 384),
    (6304, 192),
]


def norms() -> Iterator[Case]:
    for layout, word, row, part in product(
        ("first", "last"), ("fp32", "bf16", "fp16"), IMAGES, ("forward", "backward")
    ):
        yield of_image("batch_norm", row, word, layout, part)
        if row[2] >= 14:
            yield of_image("max_pool", row, word, layout, part)
    for word, row, part in product(("fp32", "bf16"), IMAGES[:6], ("forward", "backward")):
        yield of_image("mean_pool", row, word, "first", part)
        yield of_image("average_pool", row, word, "first", part)
        yield of_image("group_norm", row, word, "first", part)
        yield of_image("instance_norm", row, word, "first", part)
    for name, word, row, part in product(
        ("layer_norm", "rms_norm", "softmax"), ("fp32", "bf16"), TOKENS, ("forward", "backward")
    ):
        yield of_tokens(name, row, word, part)
    for word, columns, part in product(("fp32", "bf16"), (49, 128, 197, 512, 1024, 2048), ("forward", "backward")):
        yield of_tokens("softmax", (2**25 // columns, columns), word, part)


def of_image(name: str, row: tuple[int, int, int], word: str, layout: str, part: str) -> Case:
    def make() -> Callable[[], Any]:
        kind = precision(word)
        sample, channel, side = row
        order = torch.channels_last if layout == "last" else torch.contiguous_format
        x = rand(sample, channel, side, side, dtype=kind).to(memory_format=order).requires_grad_(part != "forward")
        w, b = (rand(channel).requires_grad_(part != "forward") for _ in range(2))  # autocast keeps them in fp32
        mean, variance = torch.zeros(channel, device="cuda"), torch.ones(channel, device="cuda")
        weights = [w, b]
        if name == "batch_norm":

            def function():
                return F.batch_norm(x, mean, variance, w, b, training=True)
        elif name == "group_norm":
            w, b = (
                w.detach().to(kind).requires_grad_(part != "forward"),
                b.detach().to(kind).requires_grad_(part != "forward"),
            )
            weights = [w, b]

            def function():
                return F.group_norm(x, 32, w, b)
        elif name == "instance_norm":

            def function():
                return F.instance_norm(x, None, None, w, b)
        else:
            weights = []
            function = {
                "max_pool": lambda: F.max_pool2d(x, 3, 2, 1),
                "average_pool": lambda: F.avg_pool2d(x, 2, 2),
                "mean_pool": lambda: F.adaptive_avg_pool2d(x, 1),
            }[name]
        return function if part == "forward" else twice(function(), [x, *weights])

    told = {"op": name, "sample": row[0], "channel": row[1], "side": row[2], "precision": word, "layout": layout}
    return Case({**told, "part": part}, make)


def of_tokens(name: str, row: tuple[int, int], word: str, part: str) -> Case:
    def make() -> Callable[[], Any]:
        kind = precision(word)
        rows, wide = row
        x = rand(rows, wide, dtype=kind).requires_grad_(part != "forward")
        w, b = (rand(wide, dtype=kind).requires_grad_(part != "forward") for _ in range(2))
        if name == "layer_norm":
            function, weights = (lambda: F.layer_norm(x, (wide,), w, b)), [w, b]
        elif name == "rms_norm":
            function, weights = (lambda: F.rms_norm(x, (wide,), w)), [w]
        else:
            function, weights = (lambda: x.softmax(-1)), []
        return function if part == "forward" else twice(function(), [x, *weights])

    return Case({"op": name, "row": row[0], "wide": row[1], "precision": word, "part": part}, make)


# losses, embeddings, rotary

LOSSES = [
    (64, 1000), (256, 1000), (512, 30522), (4096, 30522), (8192, 50257), (1024, 50257), (2048, 32000), (8192, 32000),
    (32768, 32000), (8192, 128256), (4096, 151936),
]  # fmt: skip


TABLES = [
    (8192, 768, 50257), (8192, 768, 30522), (8192, 2048, 32000), (8192, 4096, 128256), (1024, 768, 50257),
]  # fmt: skip


def losses() -> Iterator[Case]:
    for word, row, part in product(("fp32", "bf16"), LOSSES, ("forward", "backward")):
        yield loss(row, word, part, False)
        if word == "bf16":
            yield loss(row, word, part, True)
    for word, row, part in product(("fp32", "bf16"), TABLES, ("forward", "backward")):
        yield embedding(row, word, part)


def loss(row: tuple[int, int], word: str, part: str, cast: bool) -> Case:
    def make() -> Callable[[], Any]:
        kind = precision(word)
        x = rand(*row, dtype=kind).requires_grad_(part != "forward")
        target = torch.randint(row[1], (row[0],), device="cuda")

        def function():
            return F.cross_entropy(x.float() if cast else x, target)

        return function if part == "forward" else twice(function(), [x])

    told = {"op": "cross_entropy", "row": row[0], "class": row[1], "precision": word, "cast": cast, "part": part}
    return Case(told, make)


def embedding(row: tuple[int, int, int], word: str, part: str) -> Case:
    def make() -> Callable[[], Any]:
        kind = precision(word)
        tokens, wide, vocab = row
        table = rand(vocab, wide, dtype=kind).requires_grad_(part != "forward")
        text = torch.randint(vocab, (tokens,), device="cuda")

        def function():
            return F.embedding(text, table)

        return function if part == "forward" else twice(function(), [table])

    told = {"op": "embedding", "row": row[0], "wide": row[1], "vocab": row[2], "precision": word, "part": part}
    return Case(told, make)


# optimizers

WEIGHTS = {
    "one": [(8192, 8192)],
    "resnet": [(64, 64, 3, 3), (64,), (64,), (256, 64), (256,), (256,), (512, 512, 3, 3), (512,), (512,)] * 18,
    "bert": [(768, 768), (768,), (768, 768), (768,), (3072, 768), (3072,), (768, 3072), (768,), (768,), (768,)] * 18,
    "llama": [(2048, 2048), (2048, 512), (8192, 2048), (2048, 8192), (2048,), (2048,)] * 8 + [(32000, 2048)] * 2,
}
RULES: dict[str, tuple[Any, dict[str, float]]] = {
    "sgd": (torch.optim.SGD, {}),
    "momentum": (torch.optim.SGD, {"momentum": 0.9}),
    "adam": (torch.optim.Adam, {}),
    "adamw": (torch.optim.AdamW, {}),
}


def optimizers() -> Iterator[Case]:
    for weights, rule, way, word in product(WEIGHTS, RULES, ("foreach", "fused", "for-loop"), ("fp32", "bf16")):
        if way == "for-loop" and weights not in ("bert", "one"):
            continue
        yield optimizer(weights, rule, way, word)
    for weights in WEIGHTS:
        yield clip(weights)


def optimizer(weights: str, rule: str, way: str, word: str) -> Case:
    def make() -> Callable[[], Any]:
        kind = precision(word)
        tensors = [torch.nn.Parameter(rand(*shape, dtype=kind)) for shape in WEIGHTS[weights]]
        for tensor in tensors:
            tensor.grad = torch.randn_like(tensor)
        maker, said = RULES[rule]
        made = maker(tensors, lr=1e-4, foreach=way == "foreach", fused=way == "fused", **said)
        return made.step

    elements = sum(torch.Size(shape).numel() for shape in WEIGHTS[weights])
    told = {"op": "optimizer", "weights": weights, "elements": elements, "tensors": len(WEIGHTS[weights])}
    return Case({**told, "rule": rule, "way": way, "precision": word}, make)


def clip(weights: str) -> Case:
    def make() -> Callable[[], Any]:
        tensors = [torch.nn.Parameter(rand(*shape)) for shape in WEIGHTS[weights]]
        for tensor in tensors:
            tensor.grad = torch.randn_like(tensor)
        return lambda: torch.nn.utils.clip_grad_norm_(tensors, 1.0)

    elements = sum(torch.Size(shape).numel() for shape in WEIGHTS[weights])
    return Case({"op": "clip", "weights": weights, "elements": elements, "precision": "fp32"}, make)


# the host


def host(write: Callable[[dict[str, Any]], None]) -> None:
    """Host microseconds of one operator on tiny tensors: in a chain of 200, forward and backward by the clock."""
    x = torch.randn(8, 8, device="cuda", requires_grad=True)
    image = torch.randn(1, 8, 8, 8, device="cuda", requires_grad=True)
    heads = torch.randn(1, 2, 16, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    with torch.device("cuda"):
        linear, conv, conv1 = (
            torch.nn.Linear(8, 8),
            torch.nn.Conv2d(8, 8, 3, padding=1, bias=False),
            torch.nn.Conv2d(8, 8, 1),
        )
        batch, layer = torch.nn.BatchNorm2d(8), torch.nn.LayerNorm(8)
        depth, plain, inplace = (
            torch.nn.Conv2d(8, 8, 3, padding=1, groups=8),
            torch.nn.ReLU(),
            torch.nn.ReLU(inplace=True),
        )
        rms, drop = torch.nn.RMSNorm(8), torch.nn.Dropout(0.1)
    chains: dict[str, tuple[Any, Callable[[Any], Any]]] = {
        "add": (x, lambda t: t + t),
        "relu": (x, F.relu),
        "relu_module": (x, plain),
        "gelu": (x, F.gelu),
        "linear": (x, linear),
        "conv": (image, conv),
        "conv_1x1_bias": (image, conv1),
        "conv_depthwise": (image, depth),
        "batch_norm": (image, batch),
        "layer_norm": (x, layer),
        "rms_norm": (x, rms),
        "dropout": (x, drop),
        "softmax": (x, lambda t: t.softmax(-1)),
        "attention": (heads, lambda t: F.scaled_dot_product_attention(t, t, t)),
        "view": (x, lambda t: t.view(64).view(8, 8)),
        "transpose": (x, lambda t: t.t()),
        "contiguous": (x, lambda t: t.t().contiguous()),
        "conv_bn_relu": (image, lambda t: inplace(batch(conv(t)))),
    }
    for name, mode in product(chains, ("plain", "autocast")):
        start, step = chains[name]
        samples: dict[str, list[float]] = {"no_grad_us": [], "forward_us": [], "backward_us": [], "wall_us": []}
        count = 100
        try:
            for _ in range(6):
                with torch.autocast("cuda", torch.bfloat16, enabled=mode == "autocast"):
                    torch.cuda.synchronize()
                    at = time.perf_counter()
                    with torch.no_grad():
                        y = start.detach()
                        for _ in range(count):
                            y = step(y)
                    samples["no_grad_us"].append((time.perf_counter() - at) / count * 1e6)
                    torch.cuda.synchronize()
                    at = time.perf_counter()
                    y = start * 1
                    for _ in range(count):
                        y = step(y)
                    samples["forward_us"].append((time.perf_counter() - at) / count * 1e6)
                total = y.float().sum()
                torch.cuda.synchronize()
                at = time.perf_counter()
                total.backward()
                samples["backward_us"].append((time.perf_counter() - at) / count * 1e6)
                torch.cuda.synchronize()
                samples["wall_us"].append((time.perf_counter() - at) / count * 1e6)
        except Exception as problem:
            write({"op": "host", "name": name, "mode": mode, "failed": repr(problem)[:200]})
            continue
        told = {key: round(statistics.median(all_[1:]), 2) for key, all_ in samples.items()}
        write(
            {
                "op": "host",
                "name": name,
                "mode": mode,
                **told,
                "samples": {k: [round(s, 2) for s in v[1:]] for k, v in samples.items()},
            }
        )
    for weights, rule, way in product(WEIGHTS, RULES, ("foreach", "fused", "for-loop")):
        call = optimizer(weights, rule, way, "fp32").make()
        walls: list[float] = []
        for _ in range(6):
            torch.cuda.synchronize()
            at = time.perf_counter()
            call()
            walls.append((time.perf_counter() - at) * 1e6)
        torch.cuda.synchronize()
        told = {"op": "host", "name": "optimizer", "weights": weights, "rule": rule, "way": way}
        write({**told, "tensors": len(WEIGHTS[weights]), "wall_us": round(statistics.median(walls[1:]), 1)})


def copies(write: Callable[[dict[str, Any]], None]) -> None:
    """Between host and device, both ways, pinned and not."""
    for size, pinned, way in product((2**12, 2**20, 2**24, 2**28), (True, False), ("to device", "to host")):
        there = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
        here = torch.empty(size, dtype=torch.uint8, device="cuda")
        samples: list[float] = []
        for _ in range(7):
            torch.cuda.synchronize()
            at = time.perf_counter()
            here.copy_(there, non_blocking=pinned) if way == "to device" else there.copy_(here, non_blocking=pinned)
            torch.cuda.synchronize()
            samples.append((time.perf_counter() - at) * 1e6)
        told = {"op": "copy", "bytes": size, "pinned": pinned, "way": way}
        write(
            {**told, "wall_us": round(statistics.median(samples[2:]), 2), "samples": [round(s, 1) for s in samples[2:]]}
        )


GROUPS: dict[str, Callable[[], Iterator[Case]]] = {
    "optimizers": optimizers,
    "losses": losses,
    "attention": attentions,
    "products": products,
    "convolutions": convolutions,
    "norms": norms,
    "memory": memory,
}


def main() -> None:
    out, *chosen = sys.argv[1:]
    limit = 440.0
    began = time.perf_counter()
    Path(out).mkdir(parents=True, exist_ok=True)
    for name in chosen or ["host", "copies", *GROUPS]:
        gc.collect()
        torch.cuda.empty_cache()
        count = 0
        with (Path(out) / f"{name}.jsonl").open("w") as file:

            def write(line: dict[str, Any], file: Any = file) -> None:
                nonlocal count
                count += 1
                file.write(json.dumps(line) + "\n")
                file.flush()

            if name in ("host", "copies"):
                (host if name == "host" else copies)(write)
            else:
                timed(GROUPS[name](), write, began + limit)
        print(f"{name}: {count} lines after {time.perf_counter() - began:.0f} s", flush=True)
    print(torch.__version__, torch.version.cuda, torch.cuda.get_device_name())


if __name__ == "__main__":
    main()
