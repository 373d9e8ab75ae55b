"""How long one prediction takes: warm in this process, of a plan not asked for before, and cold from the shell.

python benchmarks/predict.py
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time

from foretell.compiling import available
from foretell.hardware.catalog import cluster
from foretell.model.source import load
from foretell.oracle.predict import predict
from foretell.plan.job import make_job
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import trainer
from foretell.timeline import engine

CASES = (
    ("llama3-8b", "64xh100", "dp8:zero3 tp8:sp +bf16", "dp16:zero3 tp4:sp +bf16", 64),
    (
        "llama3-70b",
        "512xh100",
        "pp4:1f1b dp16:zero1 tp8:sp +m16 +bf16",
        "pp8:1f1b dp8:zero1 tp8:sp +m32 +bf16",
        1024,
    ),
    (
        "llama3-405b",
        "16384xh100",
        "pp16:1f1b dp64:zero1 cp2:ring tp8:sp +m32 +bf16",
        "pp16:1f1b dp128:zero1 tp8:sp +m16 +bf16",
        2048,
    ),
    (
        "llama3-405b",
        "16384xh100",
        "pp16:interleaved,v4 dp64:zero1 cp2:ring tp8:sp +m32 +bf16",
        "pp8:interleaved,v2 dp128:zero1 cp2:ring tp8:sp +m16 +bf16",
        2048,
    ),
)
REPEATS = 15


def setting(model: str, plan: str, batch: int) -> Setting:
    parsed = parse(plan)
    graph = load(model, batch // parsed.microbatches, None, "bf16")
    return Setting(graph, make_job(batch, trainer="pytorch"), parsed, trainer("pytorch"))


def seconds(one: Setting, on: str) -> float:
    place = cluster(on)
    start = time.perf_counter()
    predict(one, place)
    return time.perf_counter() - start


def cold(model: str, on: str, plan: str, batch: int) -> float:
    """Best of three times of the whole command: seconds that a core was busy, whatever else the machine does."""
    said = ["predict", model, "--on", on, "--plan", plan, "--batch", str(batch), "--trainer", "pytorch"]
    taken: list[float] = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        ended = subprocess.run([sys.executable, "-m", "foretell", *said], capture_output=True, check=False)
        assert ended.returncode in (0, 1), ended.stderr  # 1: the plan does not fit
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(taken)


if __name__ == "__main__":
    played = {}
    for model, on, plan, _, batch in CASES:
        one = setting(model, plan, batch)
        seconds(one, on)
        played[plan] = statistics.median(seconds(one, on) for _ in range(REPEATS))
    if available():
        engine.kernels(fast=True)  # as a process is that has searched
    for model, on, plan, other, batch in CASES:
        one = setting(model, plan, batch)
        seconds(one, on)
        warm = statistics.median(seconds(one, on) for _ in range(REPEATS))
        new = seconds(setting(model, other, batch), on)
        print(f"{model:<12} {plan}")
        print(
            f"    warm {warm * 1e3:6.1f} ms (uncompiled {played[plan] * 1e3:.1f})   another plan, asked for the first "
            f"time {new * 1e3:6.1f} ms   cold {cold(model, on, plan, batch):5.2f} s of a core"
        )
