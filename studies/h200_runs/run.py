"""Plans that run for real on one machine with 16 cores and a GPU, measured: 1 to 16 ranks over gloo, and the GPU alone.

    python studies/h200_runs/run.py calibrate --out OUT      the processor, before: kernels and collectives
    python studies/h200_runs/run.py cpu --out OUT            every plan on 1 to 16 ranks, a thread each
    python studies/h200_runs/run.py again --out OUT          the same, in another order: how far runs lie apart
    python studies/h200_runs/run.py gpu --out OUT            one rank on the GPU
    python studies/h200_runs/run.py calibrate --out OUT --quick --name after
    python studies/h200_runs/run.py turns --out OUT          some of the plans; a calibration and they take turns

Each ends within --minutes (7) and writes as it goes: OUT/runs.jsonl has a line for each run, OUT/records the whole
records. `--only tp,zero3` runs some of the plans. Runs that a file of --have knows are left out, so that a part that
was stopped goes on. `--small` tries all this on a laptop. `analyse.py` reads the lines and predicts them.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from foretell.errors import ForetellError
from foretell.plan.text import parse
from foretell.runtime.assignment import Assignment, Report
from foretell.runtime.launch import Ranks
from foretell.runtime.measure import critical_rank
from foretell.runtime.recording import machine, recorded


class Cell(NamedTuple):
    """One run."""

    model: str
    batch: int
    plan: str
    steps: int = 10
    device: str = "cpu"
    optimizer: str = ""
    threads: int = 0


LLAMA = "llama:layers=16,hidden=256,heads=32,kv_heads=16,ffn=768,vocab=2048,seq=64"
CNN = "resnet18:image=128,classes=256"
LARGE_IMAGES = "resnet18:image=512,classes=256"
"""As much work in one image as CNN has in sixteen: rows of it are shared by up to 16 ranks."""

GPT = "gpt2:layers=16,hidden=128,heads=16,vocab=128,seq=64,dropout=0,tied=false"
"""The language model of studies/bench_h200_cores."""

RANKS = (2, 4, 8, 16)

LLAMA_PLANS = ("dp{n}", "dp{n}:zero1", "dp{n}:zero3", "tp{n}", "pp{n}:1f1b +m16")
CNN_PLANS = ("dp{n}", "dp{n}:zero1", "dp{n}:zero3", "filter{n}", "channel{n}")
HYBRIDS = {
    LLAMA: ("dp2 tp2", "dp4 tp2", "dp2 tp4", "dp8 tp2", "dp4 tp4", "dp2 pp4:1f1b +m8"),
    CNN: ("dp2 filter2", "dp4 filter2", "dp2 filter4", "dp4 filter4", "dp8 filter2", "dp4 channel4", "dp4 spatial4"),
}
PIPELINES = (2, 4, 8)
"""Ranks that the CNN has enough layers for."""

TURNS = {
    (
        LLAMA,
        16,
    ): "dp1 | dp4 | dp16 | dp4:zero1 | dp16:zero1 | dp8:zero2 | dp2:zero3 | dp8:zero3 | tp2 | tp4 | tp8 | tp16"
    " | pp2:1f1b +m16 | pp8:1f1b +m16 | dp4 tp2 | dp2 pp4:1f1b +m8",
    (CNN, 16): "dp1 | dp2 | dp8 | dp8:zero1 | dp4:zero2 | dp4:zero3 | dp16:zero3 | filter2 | filter8 | channel4"
    " | channel16 | pp4:1f1b +m16 | dp4 filter2 | dp4 spatial4",
    (LARGE_IMAGES, 1): "dp1 | spatial2 | spatial4 | spatial16",
    (GPT, 16): "dp1 | dp4 | tp4 | pp4:1f1b +m16 | dp8:zero2 | dp16:zero3",
}
"""Every way of splitting on few ranks and on many, and the plans that were farthest off before."""

GPU = (
    ("resnet50", 64, "dp1 +tf32", "momentum"),
    ("resnet50", 64, "dp1 +amp_bf16", "momentum"),
    ("resnet18:image=128,classes=256", 256, "dp1 +fp32", "adamw"),
    ("vgg16", 32, "dp1 +tf32", "momentum"),
    ("vit-b-16", 64, "dp1 +amp_bf16", "adamw"),
    ("gpt2:seq=1024", 8, "dp1 +bf16:pure", "adamw"),
    ("gpt2:seq=1024", 16, "dp1 +bf16:pure +m2", "adamw"),
    ("gpt2:seq=1024", 16, "dp1 +bf16:pure +recompute:block", "adamw"),
    ("llama:layers=8,hidden=2048,heads=32,kv_heads=8,ffn=8192,vocab=32000,seq=2048", 4, "dp1 +bf16:pure", "adamw"),
    ("llama:layers=12,hidden=1024,heads=16,kv_heads=16,ffn=2816,vocab=32000,seq=1024", 8, "dp1 +tf32", "adamw"),
    ("bert-base:seq=512", 16, "dp1 +bf16:pure", "adamw"),
    ("lenet", 256, "dp1 +fp32", "sgd"),
    ("gpt2:seq=1024", 8, "dp1 +bf16:pure +compiled", "adamw"),
    ("resnet50", 64, "dp1 +amp_bf16 +compiled", "momentum"),
    ("gpt2:seq=1024", 8, "dp1 +bf16:pure +offload:optimizer", "adamw"),
    ("gpt2:seq=1024", 8, "dp1 +bf16 +offload:optimizer", "adamw"),
    ("gpt2:seq=1024", 8, "dp1 +bf16:pure +offload:activations", "adamw"),
)


def cpu_cells() -> Iterator[Cell]:
    """Few ranks and many in turn, so that what is heavy comes early; strong scaling: the batch stays."""
    for model, batch in ((LLAMA, 16), (CNN, 16), (LARGE_IMAGES, 1)):
        yield Cell(model, batch, "dp1", 6)
    for n in RANKS:
        yield from (Cell(LLAMA, 16, plan.format(n=n)) for plan in LLAMA_PLANS)
        yield from (Cell(CNN, 16, plan.format(n=n)) for plan in CNN_PLANS)
        yield Cell(LARGE_IMAGES, 1, f"spatial{n}")
        if n in PIPELINES:
            yield Cell(CNN, 16, f"pp{n}:1f1b +m16")
    for model, plans in HYBRIDS.items():
        yield from (Cell(model, 16, plan) for plan in plans)


def turns_cells() -> list[Cell]:
    """One rank first, then in an order that has nothing to do with models and ranks."""
    every = [Cell(model, batch, plan, 6) for (model, batch), plans in TURNS.items() for plan in plans.split(" | ")]
    random.Random(2).shuffle(every)
    return sorted(every, key=lambda cell: cell.plan != "dp1")


def gpu_cells() -> Iterator[Cell]:
    for model, batch, plan, optimizer in GPU:
        yield Cell(model, batch, plan, 20, "cuda", optimizer)


def small(cells: list[Cell], most: int) -> list[Cell]:
    """The same on few ranks and small models: whether it all works."""
    smaller = {
        LLAMA: LLAMA.replace("layers=16,hidden=256", "layers=4,hidden=64"),
        CNN: "resnet18:image=64,classes=256",
        LARGE_IMAGES: "resnet18:image=128,classes=256",
    }
    return [
        cell._replace(
            model=smaller.get(cell.model, cell.model),
            batch=min(cell.batch, 8),
            plan=cell.plan.replace("+m16", "+m8"),
            steps=3,
        )
        for cell in cells
        if parse(cell.plan).ranks <= most
    ]


def chosen(cell: Cell, words: list[str]) -> bool:
    """Whether a plan has one of these axes or variants, or is the one rank that they are compared with."""
    axes = parse(cell.plan).axes
    said = {axis.word for axis in axes} | {getattr(axis, "storage", "") for axis in axes}
    return parse(cell.plan).ranks == 1 or not said.isdisjoint(words)


# running


def key(cell: Cell, part: str) -> tuple[Any, ...]:
    return part, cell.model, cell.batch, cell.plan, cell.device, cell.optimizer


def known(files: list[Path]) -> set[tuple[Any, ...]]:
    """What has run already."""
    lines = (json.loads(line) for file in files if file.exists() for line in file.read_text().splitlines())
    return {tuple(line["key"]) for line in lines}


def run(part: str, cells: list[Cell], out: Path, have: list[Path], minutes: float) -> None:
    """Each cell in a group of ranks of its own; all are forked by one process that has torch."""
    end = time.monotonic() + 60 * minutes
    lines = out / "runs.jsonl"
    done = known([lines, *have])
    left = [cell for cell in cells if key(cell, part) not in done]
    ranks = Ranks().__enter__()
    try:
        for at, cell in enumerate(left):
            if time.monotonic() > end:
                print(f"{len(left) - at} of {len(cells)} are left: the same again with --have", flush=True)
                return
            start = time.monotonic()
            line = one(cell, ranks, out, max(5.0, end + 30 - time.monotonic()))
            line |= {"key": key(cell, part), "took": round(time.monotonic() - start, 1)}
            with lines.open("a") as file:
                file.write(json.dumps(line) + "\n")
            told = line.get("failed") or f"{1e3 * line['measurement']['step_seconds']:9.1f} ms"
            print(f"{line['took']:6.1f} s  {cell.model.partition(':')[0]:<9} {cell.plan:<22} {told[:300]}", flush=True)
            if "failed" in line:  # the process that forks may be gone with it
                ranks.__exit__(None, None, None)
                ranks = Ranks().__enter__()
        print(f"all {len(cells)} are done", flush=True)
    finally:
        ranks.__exit__(None, None, None)


def one(cell: Cell, ranks: Ranks, out: Path, seconds: float) -> dict[str, Any]:
    """What came of a cell: a measurement with the ranks' own figures, or why there is none."""
    given = {"model": cell.model, "plan": cell.plan, "batch": cell.batch, "optimizer": cell.optimizer}
    assignment = Assignment(**given, steps=cell.steps, device=cell.device, threads=cell.threads)
    try:
        reports = ranks.run(assignment, seconds)
        found = recorded(assignment, reports, str(out / "records"))
    except ForetellError as problem:
        return {"assignment": msgspec.to_builtins(assignment), "failed": str(problem)}
    return {
        "assignment": msgspec.to_builtins(assignment),
        "measurement": msgspec.to_builtins(msgspec.structs.replace(found, record="")),
        "machine": msgspec.to_builtins(machine(cell.device)),
        "place": critical_rank(reports).place.get("pp", 0),
        "ranks": [_figures(report) for report in reports],
        "versions": reports[0].versions,
    }


def _figures(report: Report) -> dict[str, Any]:
    """A rank's medians, of its own thread too, its steps, and its memory."""
    return {
        "place": report.place,
        "busy": {name: _middle(values) for name, values in report.busy.items()},
        "steps": [round(value, 6) for value in report.steps],
        "allocated": report.allocated,
        "resting": report.resting,
    }


def _middle(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def calibrate(out: Path, name: str, quick: bool, minutes: float, device: str) -> None:
    """The machine as `foretell calibrate` measures it."""
    from foretell.calibration.measure import Wanted, measure

    done = measure(Wanted(device, quick, minutes=minutes, resume=True), out / f"calibration_{name}.json")
    print(f"{len(done.found.samples)} samples, complete: {done.found.complete}, failed: {done.failed}", flush=True)


def turns(cells: list[Cell], out: Path, have: list[Path], minutes: float) -> None:
    """A pass of the calibration and a third of the runs, three times: what the machine does meanwhile is in both."""
    from foretell.calibration.measure import PASSES, Wanted, measure

    end = time.monotonic() + 60 * minutes
    for at in range(PASSES):
        start = time.monotonic()
        done = measure(Wanted("cpu", resume=True, passes=at + 1), out / "calibration.json")
        print(f"{time.monotonic() - start:.0f} s: {len(done.found.samples)} samples, failed: {done.failed}", flush=True)
        run("turns", cells[at::PASSES], out, have, (end - time.monotonic()) / 60)


def main() -> None:
    given = argparse.ArgumentParser()
    given.add_argument("part", choices=("calibrate", "cpu", "again", "turns", "gpu"))
    given.add_argument("--out", type=Path, required=True)
    given.add_argument("--have", type=Path, nargs="*", default=[])
    given.add_argument("--minutes", type=float, default=7.0)
    given.add_argument("--small", type=int, default=0, metavar="RANKS")
    given.add_argument("--only", default="", metavar="WORDS", help="axes and variants of the plans that run: tp,zero3")
    given.add_argument("--quick", action="store_true")
    given.add_argument("--name", default="before")
    asked = given.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.part == "calibrate":
        calibrate(asked.out, asked.name, asked.quick, asked.minutes, "cpu")
        return
    made = {"gpu": gpu_cells, "turns": turns_cells}
    cells = list(made.get(asked.part, cpu_cells)())
    if asked.only:
        cells = [cell for cell in cells if chosen(cell, asked.only.split(","))]
    if asked.part == "again":
        random.Random(1).shuffle(cells)
    cells = small(cells, asked.small) if asked.small else cells
    if asked.part == "turns":
        turns(cells, asked.out, asked.have, asked.minutes)
    else:
        run(asked.part, cells, asked.out, asked.have, asked.minutes)


if __name__ == "__main__":
    main()
