"""Convolutions as ranks run them that share out filters, channels or rows: nothing but PyTorch is needed.

    python studies/h200_split_convolutions/measure.py --out FOLDER [--seconds 55]

Writes FOLDER/split_convolutions.jsonl, a line a case, as it goes. A case is one local convolution (forward, gradient of
the input, or of the weight), or one of the copies that cut and join activations around it. `device_us` is the median
of `samples`, each the time between two events on the device; the queue is filled behind a kernel that waits, so that
no host is in it. `host_us` is the host's time to start one call. Cases come in an order drawn by SEED, so that what a
limit of seconds leaves is a fair share. Half of the layers of each kind is set aside by the same seed, before anything
is timed: all lines of such a layer carry `set_aside`, and forms and constants are read off the others alone.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise, product
from pathlib import Path
from typing import Any, NamedTuple

import torch

SEED = 24
WARM, CALLS, SLOW_CALLS = 3, 9, 3
SLOW = 0.02  # seconds of a call, from which on fewer are made
WAIT = 4_000_000  # cycles that the device waits while calls are queued
RANKS = (1, 2, 4, 8, 16, 32, 64)
WORDS = ("fp32", "tf32", "bf16")
LAYOUTS = ("first", "last")
PARTS = ("forward", "input_gradient", "weight_gradient")


class Layer(NamedTuple):
    """A whole layer, before anything is split."""

    network: str
    batch: int
    channels: int
    filters: int
    image: int
    kernel: int
    stride: int
    padding: int
    space: int = 2

    @property
    def kind(self) -> tuple[int, bool, int]:
        return self.kernel, self.stride > 1, self.space

    @property
    def rows(self) -> int:
        """Rows of the output."""
        return (self.image + 2 * self.padding - self.kernel) // self.stride + 1


LAYERS = (
    Layer("resnet", 32, 3, 64, 224, 7, 2, 3),
    Layer("resnet", 32, 64, 64, 56, 3, 1, 1),
    Layer("resnet", 32, 64, 256, 56, 1, 1, 0),
    Layer("resnet", 32, 256, 64, 56, 1, 1, 0),
    Layer("resnet", 32, 128, 128, 56, 3, 2, 1),
    Layer("resnet", 32, 256, 512, 56, 1, 2, 0),
    Layer("resnet", 32, 128, 512, 28, 1, 1, 0),
    Layer("resnet", 32, 512, 128, 28, 1, 1, 0),
    Layer("resnet", 32, 128, 128, 28, 3, 1, 1),
    Layer("resnet", 32, 256, 256, 28, 3, 2, 1),
    Layer("resnet", 32, 256, 256, 14, 3, 1, 1),
    Layer("resnet", 32, 256, 1024, 14, 1, 1, 0),
    Layer("resnet", 32, 1024, 256, 14, 1, 1, 0),
    Layer("resnet", 32, 1024, 2048, 14, 1, 2, 0),
    Layer("resnet", 32, 512, 512, 7, 3, 1, 1),
    Layer("resnet", 32, 512, 2048, 7, 1, 1, 0),
    Layer("resnet", 32, 2048, 512, 7, 1, 1, 0),
    Layer("vgg", 32, 3, 64, 224, 3, 1, 1),
    Layer("vgg", 32, 64, 64, 224, 3, 1, 1),
    Layer("vgg", 32, 64, 128, 112, 3, 1, 1),
    Layer("vgg", 32, 128, 256, 56, 3, 1, 1),
    Layer("vgg", 32, 256, 256, 56, 3, 1, 1),
    Layer("vgg", 32, 256, 512, 28, 3, 1, 1),
    Layer("vgg", 32, 512, 512, 28, 3, 1, 1),
    Layer("vgg", 32, 512, 512, 14, 3, 1, 1),
    Layer("cosmoflow", 2, 16, 32, 64, 3, 1, 1, 3),
    Layer("cosmoflow", 2, 64, 128, 32, 3, 1, 1, 3),
)


class Case(NamedTuple):
    """What is told of a case, its multiply-adds twice, and how a call of it is made."""

    told: dict[str, Any]
    flops: float
    make: Callable[[], Callable[[], Any]]


def precision(word: str) -> torch.dtype:
    torch.backends.cuda.matmul.allow_tf32 = word == "tf32"
    torch.backends.cudnn.allow_tf32 = word == "tf32"
    return torch.bfloat16 if word == "bf16" else torch.float32


def images(*shape: int, word: str, layout: str) -> torch.Tensor:
    """Random numbers in a layout."""
    drawn = torch.randn(shape, device="cuda", dtype=precision(word))
    if layout == "first":
        return drawn
    return drawn.to(memory_format=torch.channels_last if len(shape) == 4 else torch.channels_last_3d)


def local(layer: Layer, split: str, ranks: int) -> dict[str, int] | None:
    """Sizes that one rank has of a layer; nothing where it cannot be split so often."""
    whole = {"in": layer.channels, "out": layer.filters, "rows": layer.rows}
    name = {"filter": "out", "channel": "in", "rows": "rows"}[split]
    if ranks > whole[name] or (name != "rows" and whole[name] % ranks):
        return None
    return {**whole, name: -(-whole[name] // ranks)}


def convolution(layer: Layer, split: str, ranks: int, word: str, layout: str, part: str, aside: bool) -> Case | None:
    """One part of the local convolution. Where rows are split the image comes with its halo, padded at its sides."""
    sizes = local(layer, split, ranks)
    if sizes is None:
        return None
    space = layer.space
    high = (sizes["rows"] - 1) * layer.stride + layer.kernel if split == "rows" else layer.image
    padding = [0 if split == "rows" else layer.padding, *[layer.padding] * (space - 1)]
    shape = (layer.batch, sizes["in"], high, *[layer.image] * (space - 1))
    positions = layer.batch * sizes["rows"] * layer.rows ** (space - 1)
    flops = 2.0 * positions * sizes["in"] * sizes["out"] * layer.kernel**space

    def make() -> Callable[[], Any]:
        x = images(*shape, word=word, layout=layout)
        w = images(sizes["out"], sizes["in"], *[layer.kernel] * space, word=word, layout=layout)
        said = [layer.stride] * space, padding, [1] * space, False, [0] * space, 1
        if part == "forward":
            return lambda: torch.ops.aten.convolution(x, w, None, *said)
        y = torch.randn_like(torch.ops.aten.convolution(x, w, None, *said))
        mask = [part == "input_gradient", part == "weight_gradient", False]
        return lambda: torch.ops.aten.convolution_backward(y, x, w, None, *said, mask)

    told = {"op": "convolution", **layer._asdict(), "split": split, "ranks": ranks, "local": sizes, "high": high}
    return Case({**told, "precision": word, "layout": layout, "part": part, "set_aside": aside}, flops, make)


def copies(layer: Layer, ranks: int, word: str, layout: str, aside: bool) -> Iterator[Case]:
    """What cuts and joins the output of a layer, and its image with a halo."""
    area = [layer.rows] * layer.space
    told = {"op": "copy", **layer._asdict(), "ranks": ranks, "precision": word, "layout": layout, "set_aside": aside}
    elements = float(layer.batch * layer.filters * layer.rows**layer.space)
    form = (
        {} if layout == "first" else {"memory_format": (torch.channels_last, torch.channels_last_3d)[layer.space - 2]}
    )
    if layer.filters % ranks == 0:
        part = layer.filters // ranks

        def join() -> Callable[[], Any]:
            parts = [images(layer.batch, part, *area, word=word, layout=layout) for _ in range(ranks)]
            return lambda: torch.cat(parts, 1)

        def cut() -> Callable[[], Any]:
            whole = images(layer.batch, layer.filters, *area, word=word, layout=layout)
            return lambda: whole.narrow(1, part * (ranks - 1), part).contiguous(**form)

        def gathered() -> Callable[[], Any]:  # as a collective leaves it: rank by rank, each with all samples
            whole = torch.randn(ranks, layer.batch, part, *area, device="cuda", dtype=precision(word))
            return lambda: torch.cat(list(whole.unbind(0)), 1)

        yield Case({**told, "copy": "join channels", "elements": elements}, 0, join)
        yield Case({**told, "copy": "cut channels", "elements": elements / ranks}, 0, cut)
        if layout == "first":
            yield Case({**told, "copy": "join gathered", "elements": elements}, 0, gathered)
    if ranks <= layer.rows:
        rows = -(-layer.rows // ranks)
        shape = (layer.batch, layer.filters, rows, *area[1:])

        def halo() -> Callable[[], Any]:
            own = images(*shape, word=word, layout=layout)
            edge = images(*shape[:2], 1, *area[1:], word=word, layout=layout)
            return lambda: torch.cat([edge, own, edge], 2)

        def border() -> Callable[[], Any]:
            own = images(*shape, word=word, layout=layout)
            return lambda: own.narrow(2, 0, 1).contiguous(**form)

        sent = float(layer.batch * layer.filters * layer.rows ** (layer.space - 1))
        yield Case({**told, "copy": "join rows", "elements": elements / layer.rows * rows + 2 * sent}, 0, halo)
        yield Case({**told, "copy": "cut rows", "elements": sent}, 0, border)


def aside_by_seed() -> dict[Layer, bool]:
    """Half of the layers of each kind, of an odd number the smaller half or the larger by the draw."""
    kinds: defaultdict[Any, list[Layer]] = defaultdict(list)
    for layer in LAYERS:
        kinds[layer.kind].append(layer)
    draw, aside = random.Random(SEED), dict[Layer, bool]()
    for _, layers in sorted(kinds.items()):
        chosen = set(draw.sample(layers, len(layers) // 2 + (len(layers) % 2 and draw.randint(0, 1))))
        aside.update({layer: layer in chosen for layer in layers})
    return aside


def cases() -> list[Case]:
    """All cases in the order of the draw; an unsplit layer once."""
    aside, all_ = aside_by_seed(), list[Case]()
    for layer, ranks, word, layout in product(LAYERS, RANKS, WORDS, LAYOUTS):
        for split, part in product(("filter", "channel", "rows") if ranks > 1 else ("filter",), PARTS):
            if layer.channels == 3 and (part == "input_gradient" or split == "channel"):
                continue  # nobody asks for the gradient of pictures, or splits three channels
            case = convolution(layer, split, ranks, word, layout, part, aside[layer])
            all_.extend([case] if case else [])
        if ranks > 1 and word != "tf32" and layer.network in ("resnet", "vgg") and layer.filters * layer.rows > 7000:
            all_.extend(copies(layer, ranks, word, layout, aside[layer]))
    random.Random(SEED).shuffle(all_)
    return all_


def timed(case: Case) -> dict[str, Any]:
    call = case.make()
    torch.cuda.synchronize()
    call()
    torch.cuda.synchronize()  # the library has looked for a kernel
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    calls = CALLS if time.perf_counter() - start < SLOW else SLOW_CALLS
    for _ in range(WARM - 2):
        call()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(calls + 1)]
    torch.cuda._sleep(WAIT)
    marks[0].record()
    start = time.perf_counter()
    for mark in marks[1:]:
        call()
        mark.record()
    host = (time.perf_counter() - start) / calls * 1e6
    late = marks[0].query()  # the device had begun before the last call was queued: the host may be in the samples
    torch.cuda.synchronize()
    samples = [before.elapsed_time(after) * 1e3 for before, after in pairwise(marks)]
    middle = statistics.median(samples)
    said: dict[str, Any] = {"device_us": round(middle, 2), "samples": [round(own, 2) for own in samples]}
    said |= {"host_us": round(host, 1), "queued_in_time": not late}
    if case.flops:
        said["tflops"] = round(case.flops / middle / 1e6, 3)
    return said


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--out", type=Path, required=True)
    ask.add_argument("--seconds", type=float, default=55)
    asked = ask.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    begun = time.perf_counter()
    all_ = cases()
    about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda}
    about |= {"cudnn": torch.backends.cudnn.version(), "cases": len(all_), "seed": SEED}
    print(about, flush=True)
    with (asked.out / "split_convolutions.jsonl").open("w") as file:
        file.write(json.dumps({"about": about}) + "\n")
        for number, case in enumerate(all_):
            if time.perf_counter() - begun > asked.seconds:
                break
            try:
                said = timed(case)
            except Exception as problem:
                said = {"failed": repr(problem)[:200]}
            file.write(json.dumps({**case.told, **said}) + "\n")
            if number % 250 == 0:
                file.flush()
                print(f"{number} of {len(all_)} cases, {time.perf_counter() - begun:.0f} s", flush=True)
    print(f"{number} of {len(all_)} cases in {time.perf_counter() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
