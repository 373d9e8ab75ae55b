"""Training steps on one GPU, timed: forward, backward, update and the whole step as the wall sees it.

    python studies/h200_steps/measure.py > studies/h200_steps/measured.jsonl

One line a case, with the keys of device steps: `foretell validate studies/h200_steps/measured.jsonl` scores them.
Eager PyTorch; medians of ten steps after five that warm up; raw samples of the wall clock beside them.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
from itertools import pairwise

import torch

from foretell import modules

LLAMA = "llama:layers=8,hidden=2048,heads=32,kv_heads=8,ffn=8192,vocab=32000,seq=2048"
CASES = [
    # model, batch, precision, optimizer
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
TYPES = {"fp32": "fp32", "tf32": "fp32", "amp_bf16": "fp32", "bf16:pure": "bf16"}
WARM, REPEATS = 5, 10


def _optimizer(name: str, module: torch.nn.Module) -> torch.optim.Optimizer:
    if name == "adamw":
        return torch.optim.AdamW(module.parameters(), lr=1e-4)
    return torch.optim.SGD(module.parameters(), lr=1e-3, momentum=0.9 if name == "momentum" else 0.0)


def measure(model: str, batch: int, precision: str, rule: str) -> dict[str, object]:
    """One case."""
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    spec = f"{model}{',' if ':' in model else ':'}dtype={TYPES[precision]}" if TYPES[precision] != "fp32" else model
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    with torch.device("cuda"):
        module = modules.build(spec)
        example = modules.example(spec, batch)
    optimizer = _optimizer(rule, module)
    autocast = torch.autocast("cuda", torch.bfloat16, enabled=precision == "amp_bf16")
    walls: list[float] = []
    parts: list[list[float]] = []
    static = 0.0
    for at in range(WARM + REPEATS):
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
        torch.cuda.synchronize()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        static = torch.cuda.memory_allocated()
        marks[0].record()
        with autocast:
            loss = example.loss(module(*example.inputs), example.target)
        marks[1].record()
        loss.backward()
        marks[2].record()
        optimizer.step()
        marks[3].record()
        torch.cuda.synchronize()
        if at >= WARM:
            walls.append((time.perf_counter() - start) * 1e3)
            parts.append([one.elapsed_time(two) for one, two in pairwise(marks)])
    forward, backward, update = (statistics.median(part[k] for part in parts) for k in range(3))
    sequence = next((int(item.split("=")[1]) for item in model.split(":")[-1].split(",") if item.startswith("seq=")), 0)
    return {
        "model": model,
        "batch": batch,
        **({"seq": sequence} if sequence else {"image": 224}),
        "precision": precision,
        "optimizer": rule,
        "compile": False,
        "channels_last": False,
        "recompute": False,
        "device": "h200",
        "fwd_ms": forward,
        "bwd_ms": backward,
        "opt_ms": update,
        "step_ms": forward + backward + update,
        "wall_ms": statistics.median(walls),
        "wall_ms_samples": walls,
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30,
        "static_gib": static / 2**30,
        "torch": torch.__version__,
    }


def main() -> None:
    for model, batch, precision, rule in CASES:
        try:
            print(json.dumps(measure(model, batch, precision, rule)), flush=True)
        except Exception as problem:  # a case that fails is told, and the others go on
            print(f"{model} {batch} {precision}: {problem!r}", file=sys.stderr)
        gc.collect()


if __name__ == "__main__":
    main()
