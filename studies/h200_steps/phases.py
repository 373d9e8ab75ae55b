"""Training steps on one GPU, with the most memory of each pass: `python studies/h200_steps/phases.py > phases.jsonl`.

The steps of the third and the first list once more, and compiled ones of other models. Beside the whole step as the
wall sees it (the median of ten after five that warm up): `host_ms`, how long the host takes to start a step when it
does not wait for the device; and in one more step bytes in tensors, in GiB: `start_gib` when it begins, `forward_gib`
at most in the forward pass, `kept_gib` after it, `backward_gib` and `update_gib` at most in the backward pass and the
update. Compiled and autocast steps have the profiler's figures too (measure.py).
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from measure import FIRST, LLAMA, SMALL, THIRD, TYPES, _again, _optimizer, _profiled

from foretell import modules

MORE = [
    ("resnet101", 32, "amp_bf16", "momentum", "compile"),
    ("gpt2-medium:seq=1024", 4, "tf32", "adamw", "compile"),
    (LLAMA, 4, "bf16:pure", "adamw", "compile"),
    (SMALL, 16, "amp_bf16", "adamw", "compile"),
    ("bert-large:seq=128", 32, "amp_bf16", "adamw", "compile"),
    ("densenet121", 64, "amp_bf16", "momentum", "compile"),
    ("opt-125m:seq=2048", 4, "bf16:pure", "adamw", "compile"),
    ("vgg16", 64, "tf32", "momentum", "compile"),
]
GIB = 2**30


def stepper(model: str, batch: int, precision: str, rule: str, how: str) -> Callable[[Any], None]:
    """A training step that tells when each of its passes ends."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    kind = TYPES[precision]
    spec = f"{model}{',' if ':' in model else ':'}dtype={kind}" if kind != "fp32" else model
    with torch.device("cuda"):
        module, example = modules.build(spec), modules.example(spec, batch)
    inputs = example.inputs
    if "last" in how:
        module = module.to(memory_format=torch.channels_last)
        inputs = tuple(one.to(memory_format=torch.channels_last) for one in inputs)
    if "recompute" in how:
        _again(module)
    run = torch.compile(module) if "compile" in how else module
    optimizer = _optimizer(rule, module)
    autocast = torch.autocast("cuda", torch.bfloat16, enabled=precision == "amp_bf16")

    def step(passed: Callable[[str], None] = lambda name: None) -> None:
        optimizer.zero_grad(set_to_none=True)
        passed("start")
        with autocast:
            loss = example.loss(run(*inputs), example.target)
        passed("forward")
        loss.backward()
        passed("backward")
        optimizer.step()
        passed("update")

    return step


def memory(step: Callable[[Any], None]) -> dict[str, float]:
    """The most bytes in tensors of each pass of a step."""
    found: dict[str, float] = {}

    def passed(name: str) -> None:
        now = torch.cuda.memory_allocated() / GIB
        found[f"{name}_gib"] = now if name == "start" else torch.cuda.max_memory_allocated() / GIB
        if name == "forward":
            found["kept_gib"] = now
        torch.cuda.reset_peak_memory_stats()

    step(passed)
    return {name: round(size, 4) for name, size in found.items()}


def clock(step: Callable[..., None], times: int, wait: bool) -> list[float]:
    """Milliseconds of steps, each begun when the device is idle; with the device's end, or as the host is done."""
    found: list[float] = []
    for _ in range(times):
        torch.cuda.synchronize()
        start = time.perf_counter()
        step()
        if wait:
            torch.cuda.synchronize()
        found.append((time.perf_counter() - start) * 1e3)
    torch.cuda.synchronize()
    return found


def measure(model: str, batch: int, precision: str, rule: str, how: str = "") -> dict[str, object]:
    """One case."""
    torch.cuda.empty_cache()
    step = stepper(model, batch, precision, rule, how)
    walls = clock(step, 15, wait=True)[5:]
    host = clock(step, 3, wait=False)
    peaks = memory(step)
    profiled = _profiled(step) if "compile" in how or precision == "amp_bf16" else {}
    told = {word.split("=")[0]: int(word.split("=")[1]) for word in model.split(":")[-1].split(",") if "=" in word}
    size = {"seq": told["seq"]} if "seq" in told else {"image": told.get("image", 224)}
    return {
        "model": model,
        "batch": batch,
        **size,
        "precision": precision,
        "optimizer": rule,
        "compile": "compile" in how,
        "channels_last": "last" in how,
        "recompute": "recompute" in how,
        "device": "h200",
        "step_ms": None,
        "wall_ms": statistics.median(walls),
        "least_ms": min(walls),
        "host_ms": statistics.median(host),
        "peak_gib": max(peaks.values()),
        **peaks,
        **profiled,
    }


if __name__ == "__main__":
    for case in THIRD + FIRST + MORE:
        try:
            print(json.dumps(measure(*case)), flush=True)
        except Exception as problem:  # a case that fails is told, and the others go on
            print(f"{case}: {problem!r}", file=sys.stderr)
        gc.collect()
        torch.compiler.reset()
