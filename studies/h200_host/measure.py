"""What the host's work of a training step costs: python studies/h200_host/measure.py --out FOLDER

Tensors are tiny and a fake process group moves nothing, so the device is never the limit. Three rounds over all pieces
and whole steps, one after the other. Half of the whole steps go to a file of their own, drawn by a seed, for judging.
"""

from __future__ import annotations

import argparse
import platform
import random
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "src")]

import pieces  # noqa: E402
import steps  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from clock import Clock, quantiles  # noqa: E402
from counting import counted  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

SEED, ROUNDS, TURNS = 25, 3, 7
PIECES = 9.0
"""Seconds that a round of pieces may take."""


def machine(device: str) -> dict[str, Any]:
    cpu = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    names = [line.split(":")[1].strip() for line in cpu.splitlines() if line.startswith("model name")]
    rates = [line.split(":")[1].strip() for line in cpu.splitlines() if line.startswith("cpu MHz")]
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "processor": names[0] if names else platform.processor(),
        "mhz": rates[:4],
        "cores": len(names),
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "load": Path("/proc/loadavg").read_text().split()[0],
    }


class Step:
    """A whole step; what it takes in either pass."""

    def __init__(self, case: steps.Case, clock: Clock) -> None:
        self.case, self.clock = case, clock
        self.forward = steps.build(case, clock.device)
        self.counts = counted(self.forward) if case.how != "compiled" else {}
        for _ in range(3):
            self.forward().backward()

    def timed(self, turns: int) -> dict[str, Any]:
        passes: dict[str, list[float]] = {"forward": [], "backward": [], "awaited": []}
        for _ in range(turns):
            self.forward.module.zero_grad(set_to_none=True)  # type: ignore[attr-defined]
            self.clock.ready()
            began = time.perf_counter()
            loss = self.forward()
            middle = time.perf_counter()
            loss.backward()
            ended = time.perf_counter()
            self.clock.ready()
            passes["awaited"].append(time.perf_counter() - began)
            passes["forward"].append(middle - began)
            passes["backward"].append(ended - middle)
        return {name: quantiles(samples) for name, samples in passes.items()}


def attempt(clock: Clock, name: str, do: Callable[[], None]) -> None:
    try:
        do()
    except Exception as error:  # one case that a version has not is no reason to lose the others
        where = traceback.extract_tb(error.__traceback__)[-1]
        clock.write("host_errors", {"case": name, "error": repr(error)[:400], "at": f"{where.filename}:{where.lineno}"})


def time_pieces(clock: Clock) -> None:
    device, least = clock.device, clock.left() - PIECES
    for kind in (pieces.plain, pieces.others, pieces.distributed, pieces.optimizers):
        for piece in kind(device):
            if clock.left() < least:
                return
            attempt(clock, f"{piece.name} {piece.part}", lambda piece=piece: time_piece(clock, piece))


def time_piece(clock: Clock, piece: pieces.Piece) -> None:
    samples, awaited = clock.calls(piece.makes())
    line = {"piece": piece.name, "part": piece.part, "count": piece.count, "round": clock.round, **quantiles(samples)}
    clock.write("host_pieces", {**line, "awaited": round(awaited * 1e6, 3)})


def main() -> None:
    read = argparse.ArgumentParser()
    read.add_argument("--out", type=Path, required=True)
    read.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    read.add_argument("--seconds", type=float, default=72.0)
    read.add_argument("--steps-only", action="store_true")
    told = read.parse_args()
    dist.init_process_group("fake", rank=0, world_size=64, store=FakeStore())
    torch.manual_seed(0)
    torch.set_num_threads(1)  # tensors are tiny
    clock = Clock(told.out, told.device, told.seconds)
    clock.write("host_machine", machine(told.device))
    every = list(steps.cases())
    names = sorted(case.name for case in every)
    aside = set(random.Random(SEED).sample(names, len(names) // 2))
    made: list[Step] = []

    def timed(step: Step) -> None:
        file = "host_steps_aside" if step.case.name in aside else "host_steps"
        line = {"case": step.case.name, "round": clock.round}
        attempt(clock, step.case.name, lambda: clock.write(file, {**line, **step.timed(TURNS)}))

    def build(case: steps.Case) -> None:
        made.append(Step(case, clock))
        clock.write("host_counts", {"case": case.name, **made[-1].counts})

    compiled = [case for case in every if case.how == "compiled"]
    for clock.round in range(ROUNDS):
        if clock.left() > 5 and not told.steps_only:
            attempt(clock, "pieces", lambda: time_pieces(clock))
        clock.write("host_machine", {"round": clock.round, "seconds left after pieces": clock.left()})
        if not made:
            for case in every:
                if case not in compiled and clock.left() > 12:
                    attempt(clock, case.name, lambda case=case: build(case))
        for step in made:
            if clock.left() > 1:
                timed(step)
        clock.write("host_machine", {"round": clock.round, "seconds left after steps": clock.left()})
    for case in compiled:  # compiling takes long, so they come last
        if clock.left() > 10:
            attempt(clock, case.name, lambda case=case: build(case))
            for clock.round in range(ROUNDS):
                timed(made[-1])
    clock.write("host_machine", {"left": clock.left(), **machine(told.device)})


if __name__ == "__main__":
    main()
