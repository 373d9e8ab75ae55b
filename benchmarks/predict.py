"""How long one prediction takes: warm in this process, and cold from the command line.

python benchmarks/predict.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from foretell.hardware.catalog import cluster
from foretell.model.source import load
from foretell.oracle.predict import predict
from foretell.plan.job import make_job
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import trainer

CASES = (
    ("llama3-8b", "64xh100", "dp8:zero3 tp8:sp +bf16", 64),
    ("llama3-70b", "512xh100", "pp4:1f1b dp16:zero1 tp8:sp +m16 +bf16", 1024),
    ("llama3-405b", "16384xh100", "pp16:1f1b dp64:zero1 cp2:ring tp8:sp +m32 +bf16", 2048),
    ("llama3-405b", "16384xh100", "pp16:interleaved,v4 dp64:zero1 cp2:ring tp8:sp +m32 +bf16", 2048),
)
REPEATS = 7


def warm(model: str, on: str, plan: str, batch: int) -> float:
    """Median seconds of a prediction when model and cluster are loaded."""
    parsed, chosen, place = parse(plan), trainer("pytorch"), cluster(on)
    graph = load(model, batch // parsed.microbatches, None, "bf16")
    setting = Setting(graph, make_job(batch, trainer="pytorch"), parsed, chosen)
    taken: list[float] = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        predict(setting, place)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def cold(model: str, on: str, plan: str, batch: int) -> float:
    """Best of three seconds of the whole command."""
    said = ["predict", model, "--on", on, "--plan", plan, "--batch", str(batch), "--trainer", "pytorch"]
    taken: list[float] = []
    for _ in range(3):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "foretell", *said], check=True, capture_output=True)
        taken.append(time.perf_counter() - start)
    return min(taken)


if __name__ == "__main__":
    for case in CASES:
        print(f"{case[0]:<12} {case[2]:<60} warm {warm(*case) * 1e3:7.1f} ms   cold {cold(*case):5.2f} s")
