# pyright: basic
"""Measures the steps of models.py on one GPU: `python studies/h200_hf_models/measure.py --out FOLDER --seconds 240`

Writes FOLDER/hf_models.jsonl, a line a case: seconds of steps one after the other by device events, and of their three
parts, the host's own, bytes allocated and reserved, what kernels took by the profiler in one more step. What fails, has
no room or takes too long is a line, too. `--tiny --device cpu` tries the script without a GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import json
import os
import platform
import signal
import time
import traceback
from pathlib import Path
from typing import Any

import torch
from models import CASES, Case, aside, inputs_of, module_of

WARM, TIMED, LONGEST, PATIENCE = 3, 8, 1.2, 20


def synchronized(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def mark(device: str) -> Any:
    if device != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def between(one: Any, other: Any) -> float:
    return other - one if isinstance(one, float) else one.elapsed_time(other) / 1e3


class Step:
    """A training step as its users write it."""

    def __init__(self, case: Case, device: str, tiny: bool) -> None:
        self.device = device
        with torch.device(device):
            self.module = module_of(case, tiny).to(device)
            batch = 1 if tiny else case.batch
            short = tiny and case.group not in ("vision", "audio")
            self.inputs = inputs_of(case, self.module, batch, 32 if short else case.length)
        if case.checkpointing:
            self.module.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        self.rule = torch.optim.AdamW(self.module.parameters(), lr=1e-6)
        amp = case.precision == "amp"
        self.cast: Any = torch.autocast(device, torch.bfloat16) if amp else contextlib.nullcontext()

    def __call__(self) -> list[Any]:
        marks = [mark(self.device)]
        with self.cast:
            loss = self.module(**self.inputs).loss
        marks.append(mark(self.device))
        loss.backward()
        marks.append(mark(self.device))
        self.rule.step()
        self.rule.zero_grad(set_to_none=True)
        return [*marks, mark(self.device)]


def profiled(step: Step) -> dict[str, Any]:
    """Seconds of one step's kernels, and the names that took most."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as found:
        step()
        torch.cuda.synchronize()
    assert found.profiler is not None and found.profiler.kineto_results is not None
    names: dict[str, list[float]] = {}
    for one in found.profiler.kineto_results.events():
        if "CUDA" in str(one.device_type()):
            names.setdefault(one.name()[:80], []).append(one.duration_ns() / 1e9)
    longest = sorted(names, key=lambda name: -sum(names[name]))[:14]
    return {
        "busy": sum(sum(each) for each in names.values()),
        "kernels": sum(len(each) for each in names.values()),
        "longest": {name: [len(names[name]), round(sum(names[name]), 6)] for name in longest},
    }


def measured(case: Case, device: str, tiny: bool) -> dict[str, Any]:
    begin = time.perf_counter()
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    step = Step(case, device, tiny)
    row: dict[str, Any] = {"parameters": sum(one.numel() for one in step.module.parameters())}
    row["built"] = synchronized(device) - begin
    for _ in range(1 if tiny else WARM):
        start = synchronized(device)
        step()
        once = synchronized(device) - start
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    count = 2 if tiny else max(3, min(TIMED, int(LONGEST / once)))
    start = synchronized(device)
    marks = [step() for _ in range(count)]
    host = time.perf_counter() - start
    row |= {"wall": (synchronized(device) - start) / count, "host": host / count, "first": once}
    ends = [marks[0][0], *(one[3] for one in marks)]
    row["steps"] = [round(between(one, other), 7) for one, other in itertools.pairwise(ends)]
    for at, part in enumerate(("forward", "backward", "optimizer")):
        row[part] = [round(between(one[at], one[at + 1]), 7) for one in marks]
    if device == "cuda":
        row["allocated"], row["reserved"] = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
        row |= profiled(step)
    return row


def late(number: int, frame: Any) -> None:
    raise TimeoutError(f"no end within {PATIENCE} s")


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--out", type=Path, required=True)
    asked.add_argument("--seconds", type=float, default=240.0)
    asked.add_argument("--device", default="cuda")
    asked.add_argument("--tiny", action="store_true")
    asked.add_argument("--only", default="")
    asked.add_argument("--aside", action="store_true", help="the half that judges alone")
    options = asked.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    begin, judging = time.perf_counter(), aside()
    signal.signal(signal.SIGALRM, late)
    with (options.out / "hf_models.jsonl").open("a") as file:
        import transformers

        about = {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "python": platform.python_version(),
        }
        if options.device == "cuda":
            about |= {"device": torch.cuda.get_device_name(), "free": torch.cuda.mem_get_info()}
        file.write(json.dumps({"machine": about, "at": time.time()}) + "\n")
        chosen = [case for case in CASES if options.only in case.name]
        for case in (case for case in chosen if case.name in judging or not options.aside):
            if time.perf_counter() - begin > options.seconds - 5:
                print(f"no time left for {case.name}", flush=True)
                continue
            row: dict[str, Any] = {"name": case.name, "aside": case.name in judging}
            start = time.perf_counter()
            signal.alarm(PATIENCE if options.device == "cuda" else 60)
            try:
                row |= measured(case, options.device, options.tiny)
            except Exception as problem:
                row["failure"] = f"{problem!r}"[:300] + traceback.format_exc()[-900:]
            signal.alarm(0)
            gc.collect()
            if options.device == "cuda":
                with contextlib.suppress(RuntimeError):
                    torch.cuda.empty_cache()
            row["took"] = round(time.perf_counter() - start, 2)
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())
            said = f"{1e3 * sorted(row['steps'])[len(row['steps']) // 2]:8.1f} ms" if "steps" in row else row["failure"]
            print(f"{row['took']:6} s  {case.name:16} {said[:300]}", flush=True)


if __name__ == "__main__":
    main()
