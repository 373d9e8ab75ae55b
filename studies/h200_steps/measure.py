"""Training steps on one GPU, timed: forward, backward, update and the whole step as the wall sees it.

    python studies/h200_steps/measure.py first > studies/h200_steps/measured.jsonl
    python studies/h200_steps/measure.py second > studies/h200_steps/second.jsonl
    python studies/h200_steps/measure.py third > studies/h200_steps/unseen.jsonl
    python studies/h200_steps/measure.py compiled > studies/h200_steps/compiled.jsonl

One line a case, with the keys of device steps: `foretell validate studies/h200_steps/measured.jsonl` scores them.
Medians of ten steps after five that warm up; raw samples of the wall clock beside them. One more step runs under the
profiler: `busy_ms` is the time of its kernels, `kernels` their number, `longest` the names that took most.
"""

from __future__ import annotations

import functools
import gc
import json
import statistics
import sys
import time
from itertools import pairwise
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

from foretell import modules

LLAMA = "llama:layers=8,hidden=2048,heads=32,kv_heads=8,ffn=8192,vocab=32000,seq=2048"
FIRST = [
    # model, batch, precision, optimizer, and how it ran
    ("resnet50", 64, "fp32", "momentum"),
    ("resnet50", 64, "tf32", "momentum"),
    ("resnet50", 64, "amp_bf16", "momentum"),
    ("resnet50", 256, "amp_bf16", "momentum"),
    ("resnet50", 8, "fp32", "momentum"),
    ("vgg16", 64, "tf32", "momentum"),
    ("convnext-tiny", 64, "amp_bf16", "adamw"),
    ("densenet121", 32, "fp32", "momentum"),
    ("efficientnet-b0", 64, "fp32", "momentum"),
    ("vit-b-16", 64, "amp_bf16", "adamw"),
    ("vit-b-16", 32, "fp32", "adamw"),
    ("bert-base:seq=512", 16, "bf16:pure", "adamw"),
    ("bert-base:seq=512", 8, "tf32", "adamw"),
    ("gpt2:seq=1024", 8, "bf16:pure", "adamw"),
    ("gpt2:seq=1024", 1, "bf16:pure", "adamw"),
    ("gpt2-medium:seq=1024", 4, "tf32", "adamw"),
    (LLAMA, 1, "bf16:pure", "adamw"),
    (LLAMA, 4, "bf16:pure", "adamw"),
    (LLAMA, 16, "bf16:pure", "adamw"),
    (LLAMA, 4, "tf32", "adamw"),
    ("llama3-8b:layers=8,seq=4096", 2, "bf16:pure", "adamw"),
    ("mlp", 256, "fp32", "sgd"),
]
SMALL = "llama:layers=12,hidden=1024,heads=16,kv_heads=16,ffn=2816,vocab=32000,seq=1024"
SECOND = [
    ("resnet50", 128, "amp_bf16", "momentum", "last"),
    ("resnet50", 32, "tf32", "momentum", "last"),
    ("resnet50", 128, "tf32", "momentum"),
    ("resnet50", 1, "tf32", "momentum"),
    ("resnet18", 128, "fp32", "sgd"),
    ("resnet101", 32, "amp_bf16", "momentum"),
    ("resnext50-32x4d", 32, "tf32", "momentum"),
    ("wide-resnet50-2", 32, "amp_bf16", "momentum"),
    ("vgg16", 32, "amp_bf16", "momentum"),
    ("vgg16", 32, "fp32", "momentum"),
    ("alexnet", 256, "tf32", "momentum"),
    ("mobilenet-v2", 64, "tf32", "momentum"),
    ("mobilenet-v2", 128, "amp_bf16", "momentum", "last"),
    ("densenet121", 64, "amp_bf16", "momentum"),
    ("inception-v3:aux=false,image=299", 32, "tf32", "momentum"),
    ("efficientnet-b0", 128, "amp_bf16", "momentum"),
    ("convnext-tiny", 32, "tf32", "adamw"),
    ("convnext-base", 32, "amp_bf16", "adamw"),
    ("swin-t", 32, "amp_bf16", "adamw"),
    ("swin-t", 64, "fp32", "adamw"),
    ("vit-l-16", 32, "amp_bf16", "adamw"),
    ("vit-b-16", 128, "tf32", "adamw"),
    ("unet2d:image=256", 8, "tf32", "sgd"),
    ("unet2d:image=256", 8, "amp_bf16", "sgd"),
    ("cosmoflow:image=128", 4, "tf32", "sgd"),
    ("bert-large:seq=128", 32, "amp_bf16", "adamw"),
    ("bert-base:seq=512", 32, "amp_bf16", "adamw"),
    ("bert-base:seq=128", 64, "fp32", "adamw"),
    ("bert-base:seq=128", 1, "bf16:pure", "adamw"),
    ("gpt2:seq=1024", 16, "amp_bf16", "adamw"),
    ("gpt2-large:seq=1024", 4, "bf16:pure", "adamw"),
    ("gpt2-medium:seq=1024", 8, "bf16:pure", "adamw", "recompute"),
    (SMALL, 4, "fp32", "adamw"),
    (SMALL, 16, "amp_bf16", "adamw"),
    ("llama3.2-1b:seq=4096", 2, "bf16:pure", "adamw"),
    ("llama3.2-1b:seq=2048", 8, "bf16:pure", "adamw", "recompute"),
    ("llama3-8b:layers=4,seq=8192", 1, "amp_bf16", "sgd"),
    ("t5-base", 8, "bf16:pure", "adamw"),
    ("lstm-medium", 20, "fp32", "sgd"),
]
THIRD = [
    ("resnet34", 64, "tf32", "momentum"),
    ("resnet50", 96, "bf16:pure", "sgd"),
    ("resnet152", 16, "amp_bf16", "momentum", "last"),
    ("resnet101", 64, "fp32", "momentum"),
    ("vgg19", 48, "amp_bf16", "momentum"),
    ("vgg13", 64, "tf32", "sgd", "last"),
    ("wide-resnet101-2", 64, "tf32", "momentum"),
    ("resnext101-32x8d", 16, "amp_bf16", "momentum"),
    ("densenet169", 96, "tf32", "momentum"),
    ("mobilenet-v3-large", 256, "tf32", "momentum"),
    ("efficientnet-b2", 64, "amp_bf16", "momentum", "last"),
    ("inception-v3:aux=false,image=299", 128, "amp_bf16", "momentum"),
    ("unet3d:image=64", 2, "tf32", "sgd"),
    ("alexnet", 512, "amp_bf16", "momentum"),
    ("vit-b-32", 128, "amp_bf16", "adamw"),
    ("vit-l-16", 16, "tf32", "adamw"),
    ("swin-s", 64, "tf32", "adamw"),
    ("convnext-small", 64, "amp_bf16", "adamw"),
    ("bert-large:seq=512", 8, "bf16:pure", "adamw"),
    ("bert-base-mlm:seq=256", 32, "tf32", "adamw"),
    ("roberta-base:seq=512", 24, "amp_bf16", "adamw"),
    ("gpt2-medium:seq=1024", 16, "amp_bf16", "adamw"),
    ("opt-125m:seq=2048", 4, "bf16:pure", "adamw"),
    ("gpt2-xl:seq=1024", 4, "bf16:pure", "adamw"),
    ("bloom-560m:seq=1024", 2, "bf16:pure", "adamw"),
    ("qwen2.5-0.5b:seq=2048", 8, "bf16:pure", "adamw"),
    ("qwen3-0.6b:seq=4096", 2, "amp_bf16", "adamw"),
    ("llama2-7b:layers=4,seq=2048", 8, "bf16:pure", "adamw"),
    ("llama3-8b:layers=2,seq=2048", 4, "tf32", "sgd"),
    ("mistral-7b:layers=3,seq=4096", 1, "bf16:pure", "adamw", "recompute"),
]
COMPILED = [
    ("resnet50", 64, "amp_bf16", "momentum", "compile"),
    ("bert-base:seq=512", 16, "bf16:pure", "adamw", "compile"),
    ("gpt2:seq=1024", 8, "bf16:pure", "adamw", "compile"),
    (SMALL, 8, "tf32", "adamw", "compile"),
    ("llama3.2-1b:seq=4096", 2, "bf16:pure", "adamw", "compile"),
    ("vit-b-16", 64, "amp_bf16", "adamw", "compile"),
    ("resnet50", 64, "tf32", "momentum", "compile last"),
    ("convnext-tiny", 64, "amp_bf16", "adamw", "compile"),
]
LISTS = {"first": FIRST, "second": SECOND, "third": THIRD, "compiled": COMPILED}
TYPES = {"fp32": "fp32", "tf32": "fp32", "amp_bf16": "fp32", "bf16:pure": "bf16"}
WARM, REPEATS = 5, 10


def _optimizer(name: str, module: torch.nn.Module) -> torch.optim.Optimizer:
    if name == "adamw":
        return torch.optim.AdamW(module.parameters(), lr=1e-4)
    return torch.optim.SGD(module.parameters(), lr=1e-3, momentum=0.9 if name == "momentum" else 0.0)


def _again(module: torch.nn.Module) -> None:
    """Every layer of the stack keeps its input alone, and runs again in the backward pass."""
    stack = next(child for child in module.modules() if isinstance(child, torch.nn.ModuleList) and len(child) > 1)
    for layer in stack:
        layer.forward = functools.partial(checkpoint, layer.forward, use_reentrant=False)


def _profiled(step: Any) -> dict[str, object]:
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        step()
        torch.cuda.synchronize()
    names: dict[str, list[float]] = {}
    for event in found.profiler.kineto_results.events():
        if event.device_type() == torch.autograd.DeviceType.CUDA:
            names.setdefault(event.name()[:90], []).append(event.duration_ns() / 1e6)
    longest = sorted(names, key=lambda name: -sum(names[name]))[:14]
    return {
        "busy_ms": sum(sum(each) for each in names.values()),
        "kernels": sum(len(each) for each in names.values()),
        "longest": {name: [len(names[name]), round(sum(names[name]), 4)] for name in longest},
    }


def measure(model: str, batch: int, precision: str, rule: str, how: str = "") -> dict[str, object]:
    """One case."""
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    spec = f"{model}{',' if ':' in model else ':'}dtype={TYPES[precision]}" if TYPES[precision] != "fp32" else model
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    with torch.device("cuda"):
        module = modules.build(spec)
        example = modules.example(spec, batch)
    last = "last" in how
    inputs = example.inputs
    if last:
        module = module.to(memory_format=torch.channels_last)
        inputs = tuple(one.to(memory_format=torch.channels_last) for one in inputs)
    if "recompute" in how:
        _again(module)
    run = torch.compile(module) if "compile" in how else module
    optimizer = _optimizer(rule, module)
    autocast = torch.autocast("cuda", torch.bfloat16, enabled=precision == "amp_bf16")
    walls: list[float] = []
    parts: list[list[float]] = []
    static = 0.0

    def step(marks: list[torch.cuda.Event]) -> float:
        optimizer.zero_grad(set_to_none=True)
        before = torch.cuda.memory_allocated()
        marks[0].record()
        with autocast:
            loss = example.loss(run(*inputs), example.target)
        marks[1].record()
        loss.backward()
        marks[2].record()
        optimizer.step()
        marks[3].record()
        return before

    for at in range(WARM + REPEATS):
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
        torch.cuda.synchronize()
        start = time.perf_counter()
        static = step(marks)
        torch.cuda.synchronize()
        if at >= WARM:
            walls.append((time.perf_counter() - start) * 1e3)
            parts.append([one.elapsed_time(two) for one, two in pairwise(marks)])
    peak, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    forward, backward, update = (statistics.median(part[k] for part in parts) for k in range(3))
    side = next((int(item.split("=")[1]) for item in model.split(":")[-1].split(",") if item.startswith("image=")), 224)
    sequence = next((int(item.split("=")[1]) for item in model.split(":")[-1].split(",") if item.startswith("seq=")), 0)
    return {
        "model": model,
        "batch": batch,
        **({"seq": sequence} if sequence else {"image": side}),
        "precision": precision,
        "optimizer": rule,
        "compile": "compile" in how,
        "channels_last": last,
        "recompute": "recompute" in how,
        "device": "h200",
        "fwd_ms": forward,
        "bwd_ms": backward,
        "opt_ms": update,
        "step_ms": forward + backward + update,
        "wall_ms": statistics.median(walls),
        "wall_ms_samples": walls,
        "peak_gib": peak / 2**30,
        "reserved_gib": reserved / 2**30,
        "static_gib": static / 2**30,
        **_profiled(lambda: step([torch.cuda.Event(enable_timing=True) for _ in range(4)])),
        "torch": torch.__version__,
    }


def main() -> None:
    for name in sys.argv[1:] or LISTS:
        for case in LISTS[name]:
            try:
                print(json.dumps(measure(*case)), flush=True)
            except Exception as problem:  # a case that fails is told, and the others go on
                print(f"{case}: {problem!r}", file=sys.stderr)
            gc.collect()
            torch.compiler.reset()


if __name__ == "__main__":
    main()
