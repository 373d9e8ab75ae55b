"""Watts of one GPU under steady loads, by kind of kernel: no setting of the card is ever changed.

    python studies/h200_power/measure.py --out FOLDER --seconds 75

Writes FOLDER/power.jsonl, a line a load. `joules` is the difference of the card's own energy counter over the steady
part of the loop (its first third is left out), `watts` that over its seconds; `instant` has the power sensor's samples,
`average` the driver's mean over a second. Rows with `set_aside` judge: no constant is chosen on them.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
from loads import LOADS, Load

SEED, EVERY_MS, CHUNK = 30, 25, 0.02


class Ran(NamedTuple):
    """When a loop was steady, and how many calls ended in that time."""

    start: float
    end: float
    calls: int


def set_aside(identity: str) -> bool:
    return hashlib.sha256(f"{SEED} {identity}".encode()).digest()[0] % 2 == 1


@contextmanager
def sampled(path: Path) -> Iterator[None]:
    """The sampler in a process of its own, which ends with this one."""
    command = [sys.executable, str(Path(__file__).with_name("sampler.py")), str(path), str(EVERY_MS)]
    running = subprocess.Popen(command, stdin=subprocess.PIPE)
    try:
        yield
    finally:
        if running.stdin:
            running.stdin.close()
        try:
            running.wait(3)
        except subprocess.TimeoutExpired:
            running.terminate()


def samples_of(path: Path) -> list[list[float]]:
    samples: list[list[float]] = []
    for line in path.read_text().splitlines()[1:] if path.exists() else ():
        try:
            samples.append(json.loads(line))
        except ValueError:
            continue  # the last line may be half written
    return samples


def loop(load: Load, seconds: float) -> tuple[Ran, float, float]:
    """Calls without a gap for some seconds, two chunks ahead of the device; with gaps if it is to be busy in part."""
    call, flops, moved = load.make()
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    began = time.monotonic()
    call()
    torch.cuda.synchronize()
    many = max(1, min(500, int(CHUNK / max(1e-6, time.monotonic() - began))))
    many = max(1, many // 4) if load.busy < 1 else many
    began = time.monotonic()
    waiting: list[torch.cuda.Event] = []
    marks: list[float] = []
    while time.monotonic() < began + seconds:
        at = time.monotonic()
        for _ in range(many):
            call()
        event = torch.cuda.Event()
        event.record()
        waiting.append(event)
        if load.busy < 1 or len(waiting) > 2:
            waiting.pop(0).synchronize()
            marks.append(time.monotonic())
        if load.busy < 1:
            time.sleep((time.monotonic() - at) * (1 / load.busy - 1))
    torch.cuda.synchronize()
    steady = [mark for mark in marks if mark > began + seconds / 3]
    return Ran(steady[0], steady[-1], many * (len(steady) - 1)), flops, moved


def measured(ran: Ran, samples: list[list[float]]) -> dict[str, Any]:
    """What the card said between two moments."""
    inside = [sample for sample in samples if ran.start <= sample[0] <= ran.end]
    if len(inside) < 4:
        return {"failed": f"{len(inside)} samples of the card in {ran.end - ran.start:.2f} s"}
    columns = [[value for value in column if value is not None] for column in zip(*inside, strict=True)]
    told: dict[str, Any] = {"steady_seconds": round(ran.end - ran.start, 4), "samples": len(inside)}
    if len(columns[3]) > 1:
        told["joules"] = round(columns[3][-1] - columns[3][0], 3)
        told["watts"] = round(told["joules"] / (inside[-1][0] - inside[0][0]), 2)
    if columns[1]:
        ordered = sorted(columns[1])
        last = len(ordered) - 1
        told["instant_watts"] = round(statistics.mean(ordered), 2)
        told |= {"instant_p10": ordered[round(0.1 * last)], "instant_p90": ordered[round(0.9 * last)]}
        told["instant"] = columns[1]
    told["average_watts"] = columns[2][-1] if columns[2] else None
    for word, column in zip(("sm_mhz", "memory_mhz", "degrees"), columns[4:7], strict=True):
        told[word] = round(statistics.mean(column), 1) if column else None
    told["held_back"] = sorted({int(value) for value in columns[7]})
    return told


def sensor(samples: list[list[float]]) -> dict[str, Any]:
    """How often each of the card's numbers changes, in milliseconds: a slower one is averaged or stale."""
    told: dict[str, Any] = {"group": "sensor", "samples": len(samples)}
    for word, column in (("instant", 1), ("average", 2), ("joules", 3)):
        changes = [b[0] for a, b in pairwise(samples) if b[column] != a[column]]
        gaps = [(b - a) * 1e3 for a, b in pairwise(changes)]
        told[f"{word}_changes_ms"] = round(statistics.median(gaps), 1) if gaps else None
    return told


def main() -> None:
    words = argparse.ArgumentParser()
    words.add_argument("--out", type=Path, required=True)
    words.add_argument("--seconds", type=float, default=75.0)
    words.add_argument("--each", type=float, default=1.5)
    chosen = words.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    ran: list[tuple[str, Load | None, Ran | None, dict[str, Any]]] = []
    raw, out = chosen.out / "power_samples.jsonl", chosen.out / "power.jsonl"

    def idle(name: str) -> None:
        torch.cuda.synchronize()
        time.sleep(0.7)
        start = time.monotonic()
        time.sleep(1.3)
        ran.append((name, None, Ran(start, time.monotonic(), 0), {}))

    with sampled(raw):
        torch.ones(1, device="cuda")
        idle("idle")
        drawn = sorted(LOADS)
        random.Random(SEED).shuffle(drawn)  # stopping early leaves a fair sample, and heat is nobody's in particular
        for name in drawn:
            load = LOADS[name]
            if time.monotonic() > began + chosen.seconds - 3 - chosen.each:
                break
            try:
                steady, flops, moved = loop(load, chosen.each)
                ran.append((name, load, steady, {"flops": flops, "bytes": moved}))
            except Exception as problem:
                ran.append((name, load, None, {"failed": f"{type(problem).__name__}: {problem}"[:300]}))
            gc.collect()
            torch.cuda.empty_cache()
            print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
        idle("idle after")
    samples = samples_of(raw)
    about = json.loads(raw.read_text().splitlines()[0]) if samples else {"by": "nothing: the sampler said nothing"}
    about |= {"group": "about", "torch": torch.__version__, "device": torch.cuda.get_device_name()}
    with out.open("w") as file:
        file.write(json.dumps({**about, "every_ms": EVERY_MS}) + "\n" + json.dumps(sensor(samples)) + "\n")
        for name, load, steady, told in ran:
            row: dict[str, Any] = {"group": "power", "id": name, "set_aside": set_aside(name)}
            row |= (
                {"kind": load.kind, "precision": load.precision, "data": load.data, "busy": load.busy} if load else {}
            )
            if steady:
                row |= {**told, "calls": steady.calls, **measured(steady, samples)}
                row["calls_per_second"] = round(steady.calls / max(1e-9, steady.end - steady.start), 4)
            file.write(json.dumps({**row, **({} if steady else told)}) + "\n")
    print(f"{len(ran)} loads, {len(samples)} samples, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
