"""Rehearse the cases of this study on the GPU of this machine, a process each, a line each.

PYTHONPATH=src python studies/h200_rehearsals/measure.py --out FOLDER --part 0 --parts 2 --seconds 540

A case that fails, hangs or runs out of memory is a line, too. `--tiny --device cpu` tries the script where there is no
GPU: the same cases, small, on few of them (`--only WORD`).
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import signal
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # whoever asks for GPUs here must not begin with them
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
sys.path.insert(0, str(Path(__file__).parent))
sys.path += [path for path in os.environ.get("CARRIED", "").split(":") if path]

import itertools

import torch
from cases import Case, again, aside, cases

PATIENCE = 60.0
"""Seconds that a case may take; compiled ones take twice as long."""

WARM, TIMED, LONGEST = 2, 4, 2.5
"""Steps before those that are timed, how many these are, and seconds after which no further one begins."""

Mark = Callable[[str], None]


class Marks:
    """Moments of a step: by the device's events, and when the host was there."""

    def __init__(self, device: str) -> None:
        self._device = device
        self.begin()

    def begin(self) -> None:
        self._events: list[tuple[str, Any, float]] = []
        self("")

    def __call__(self, name: str) -> None:
        event: Any = None
        if self._device == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record()
        self._events.append((name, event, time.perf_counter()))

    def read(self) -> tuple[dict[str, float], dict[str, float]]:
        """Seconds by phase on the device, and those of the host."""
        synchronized(self._device)
        device, host = dict[str, float](), dict[str, float]()
        for (_, begin, early), (name, end, late) in zip(self._events, self._events[1:], strict=False):
            host[name] = host.get(name, 0.0) + late - early
            seconds = begin.elapsed_time(end) / 1e3 if begin is not None else late - early
            device[name] = device.get(name, 0.0) + seconds
        return device, host


def synchronized(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def timed(step: Callable[[Mark], None], device: str) -> dict[str, Any]:
    """Steps one after the other without a wait between them, then some that begin when the one before has ended."""
    rows: list[float] = []
    events, start = [_event(device)], synchronized(device)
    events = [_event(device)]
    for _ in range(TIMED):
        step(lambda name: None)
        events.append(_event(device))
        if time.perf_counter() - start > LONGEST:
            break
    synchronized(device)
    rows = [_between(one, next_one) for one, next_one in itertools.pairwise(events)]
    apart: list[dict[str, Any]] = []
    for _ in range(1 if statistics.median(rows) > 0.7 else 2):
        marks, begin = Marks(device), synchronized(device)
        marks.begin()
        step(marks)
        host = time.perf_counter() - begin
        by_device, by_host = marks.read()
        apart.append(
            {"seconds": time.perf_counter() - begin, "host": host, "phases": by_device, "host_phases": by_host}
        )
    return {"steps": rows, "apart": apart}


def _event(device: str) -> Any:
    if device != "cuda":
        return time.perf_counter()
    found = torch.cuda.Event(enable_timing=True)
    found.record()
    return found


def _between(one: Any, other: Any) -> float:
    return other - one if isinstance(one, float) else one.elapsed_time(other) / 1e3


def profiled(step: Callable[[Mark], None]) -> dict[str, Any]:
    """One step under the profiler, of the device alone: how long some kernel ran, and how many there were."""
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        step(lambda name: None)
        torch.cuda.synchronize()
    assert found.profiler is not None and found.profiler.kineto_results is not None
    spans: list[tuple[int, int]] = []
    slept = kernels = 0
    for one in found.profiler.kineto_results.events():
        if "CUDA" not in str(one.device_type()):
            continue
        if "spin_kernel" in one.name():
            slept += one.duration_ns()
            continue
        kernels += 1
        spans.append((one.start_ns(), one.start_ns() + one.duration_ns()))
    covered, reached = 0, 0
    for begin, end in sorted(spans):
        covered += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return {"busy": covered / 1e9, "slept": slept / 1e9, "kernels": kernels}


def rehearsed(case: Case, device: str, tiny: bool) -> dict[str, Any]:
    """One case, from beginning to end."""
    import allocations
    from subjects import built, price

    from foretell.runtime.rehearsed_world import RehearsedWorld, begun

    begin = time.perf_counter()
    if device == "cuda":
        torch.cuda.set_device(0)
        if case.expandable:
            allocations.expandable()
        allocations.keep(stacks=False)
    begun(case.rank, case.setting(tiny).plan.ranks)
    seconds, arrivals = price(case, tiny)
    world = RehearsedWorld(seconds, arrivals).enter()
    step = built(case, device, tiny)
    row: dict[str, Any] = {"built": time.perf_counter() - begin}
    for _ in range(WARM):
        before = world.seen.copy()
        step(lambda name: None)
    synchronized(device)
    row |= {"warm": time.perf_counter() - begin}
    row["messages"] = [[one.kind, len(one.ranks), one.payload, count] for one, count in (world.seen - before).items()]
    if device == "cuda":
        row["allocator"] = allocations.told()
        allocations.forget()
    row |= timed(step, device)
    if device == "cuda":
        row["memory"] = allocations.of_a_step(step)
        row["alive"] = allocations.alive(step)
        row["profile"] = profiled(step)
    return row


def child(case: Case, options: argparse.Namespace, file: Path) -> None:
    """The process of a case: its row is written whole or not at all."""
    try:
        row = rehearsed(case, options.device, options.tiny)
    except BaseException as problem:
        full = "out of memory" in str(problem).lower()
        row = {"failure": "out of memory" if full else traceback.format_exc()[-3000:]}
        if full:
            row["said"] = str(problem)[:600]
    part = file.with_suffix(".part")
    part.write_text(json.dumps(row))
    part.replace(file)
    sys.stdout.flush()
    os._exit(0)


def one(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """What came of a case, whatever it was."""
    file = options.out / "row.json"
    file.unlink(missing_ok=True)
    begin = time.perf_counter()
    process = os.fork()
    if not process:
        os.setpgid(0, 0)
        if options.device == "cuda" and torch.cuda._is_in_bad_fork():  # somebody has begun with the GPU before the fork
            os.execv(sys.executable, [sys.executable, *sys.argv, "--one", case.name])
        child(case, options, file)
    patience = PATIENCE * (2 if "compiled" in case.plan else 1)
    status: int | None = None
    while time.perf_counter() - begin < patience:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            break
        time.sleep(0.02)
    else:
        os.killpg(process, signal.SIGKILL)
        os.waitpid(process, 0)
        return {"failure": f"no end within {patience:g} s", "took": time.perf_counter() - begin}
    found = json.loads(file.read_text()) if file.is_file() else {"failure": f"ended with {status}"}
    file.unlink(missing_ok=True)
    return {**found, "took": time.perf_counter() - begin}


def listed(file: Path | None) -> list[Case]:
    """The cases of this study, or those of a file."""
    if file is None:
        return cases()
    return [Case(**json.loads(line)["case"]) for line in file.read_text().splitlines() if line.strip()]


def machine(device: str) -> dict[str, Any]:
    found: dict[str, Any] = {"torch": torch.__version__, "python": platform.python_version()}
    for name in ("transformers", "timm", "torchvision", "triton", "torchtitan"):
        try:
            found[name] = getattr(__import__(name), "__version__", "carried")
        except Exception as problem:
            found[name] = f"not there: {problem}"[:200]
    if device == "cuda":
        from foretell.hardware import this_machine

        found |= {"driver": this_machine.driver(), "clocks": this_machine.clocks()}
    return found


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--out", type=Path, required=True)
    asked.add_argument("--part", type=int, default=0)
    asked.add_argument("--parts", type=int, default=1)
    asked.add_argument("--seconds", type=float, default=540.0)
    asked.add_argument("--device", default="cuda")
    asked.add_argument("--tiny", action="store_true")
    asked.add_argument("--only", default="")
    asked.add_argument("--cases", type=Path, help="others than those of cases.py: a line of JSON each")
    asked.add_argument("--again", action="store_true", help="only cases that run otherwise since the first rows")
    asked.add_argument("--one", default="", help=argparse.SUPPRESS)
    asked.add_argument("--after", type=int, default=0, help="so many of them ran already")
    options = asked.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.one:
        (only,) = (case for case in listed(options.cases) if case.name == options.one)
        child(only, options, options.out / "row.json")
    begin, kept_aside = time.perf_counter(), aside()
    from subjects import ready

    ready()
    asked_for = again() if options.again else listed(options.cases)
    own = [case for at, case in enumerate(asked_for) if at % options.parts == options.part]
    own = [case for case in own if options.only in case.name][options.after :]
    rows = options.out / f"rehearsals_{options.part}.jsonl"
    with rows.open("a") as told, gzip.open(options.out / f"history_{options.part}.jsonl.gz", "at") as histories:
        told.write(json.dumps({"machine": machine(options.device), "at": time.time()}) + "\n")
        longest = 5.0
        for at, case in enumerate(own):
            left = options.seconds - (time.perf_counter() - begin)
            if left < min(2 * longest, 20.0):
                print(f"stopped before case {at} of {len(own)}: {left:.0f} s are left", flush=True)
                break
            row = one(case, options)
            longest = max(longest, row["took"]) if "compiled" not in case.plan else longest
            history = row.get("allocator", {}).pop("history", None)
            if history is not None:
                histories.write(json.dumps({"case": case.name, **history}) + "\n")
                histories.flush()
            told.write(json.dumps({"case": case.told(), "aside": case.name in kept_aside, **row}) + "\n")
            told.flush()
            os.fsync(told.fileno())
            step = f"{1e3 * statistics.median(row['steps']):.1f} ms" if "steps" in row else row["failure"][-300:]
            print(f"{at:3} {row['took']:5.1f} s  {case.name}: {step}", flush=True)
    print(f"done in {time.perf_counter() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main()
