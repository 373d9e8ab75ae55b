"""Experts, permutations, attention over long contexts, and kernels beside others, on one GPU.

    python studies/h200_experts_and_context/measure.py --out FOLDER --seconds 150 [--device cpu]
    python studies/h200_experts_and_context/measure.py --out FOLDER --seconds 60 --around

Writes FOLDER/experts_context.jsonl (around.jsonl), a line a case, flushed one by one. `ms` is the median of some calls
by device events, with the cache flushed before each; `samples` has every one. Rows with `set_aside` judge: no constant
is chosen on them. Needs nothing but PyTorch (and Triton, for copies that take few multiprocessors).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from around import casts, compression, merges
from beside import beside
from contexts import attention, flexible
from experts import permutation, products, scaled
from timing import Device, Lines

SHARES = (
    ("beside", beside, 0.10),
    ("permutation", permutation, 0.10),
    ("attention", attention, 0.36),
    ("experts", products, 0.28),
    ("fp8", scaled, 0.04),
    ("flex", flexible, 0.12),
)
AROUND = (("merges", merges, 0.2), ("compression", compression, 0.4), ("compiled casts", casts, 0.4))
"""Groups and their shares of the time; what one leaves goes to those after it. What may break the device comes last."""


def warm(device: Device, seconds: float) -> None:
    """Clocks rise in the first second."""
    a = device.rand(64 if device.tiny else 8192, 64 if device.tiny else 8192)
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        torch.mm(a, a)
        device.wait()


def main() -> None:
    words = argparse.ArgumentParser()
    words.add_argument("--out", type=Path, required=True)
    words.add_argument("--seconds", type=float, default=150.0)
    words.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    words.add_argument("--around", action="store_true", help="kernels around messages alone")
    chosen = words.parse_args()
    torch.manual_seed(29)
    lines = Lines(chosen.out / ("around.jsonl" if chosen.around else "experts_context.jsonl"), chosen.seconds)
    device = Device(chosen.device)
    name = "cpu" if device.tiny else torch.cuda.get_device_name()
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda, "device": name}
    if not device.tiny:
        versions |= {
            "cudnn": torch.backends.cudnn.version(),
            "memory": torch.cuda.get_device_properties(0).total_memory,
        }
    lines.write({"group": "about", **versions, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())})
    warm(device, 0.0 if device.tiny else 1.0)
    started = lines.spent()
    until = started
    for word, group, share in AROUND if chosen.around else SHARES:
        until += share * (chosen.seconds - started)
        before = lines.count
        try:
            group(lines, device, until)
        except Exception as problem:
            lines.write({"group": word, "failed": f"the group broke off: {type(problem).__name__}: {problem}"[:300]})
        print(f"{word}: {lines.count - before} lines, {lines.failed} failed so far, {lines.spent():.0f} s", flush=True)
        device.free()
    print(versions)


if __name__ == "__main__":
    main()
