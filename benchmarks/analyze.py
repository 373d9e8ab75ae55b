"""What the first half of the walk costs: start-up, analysis, tracing, and the size of a graph.

    python benchmarks/analyze.py

Prints a table of the median and spread of repeated runs, each in a process of its own, next to the
target. Times depend on the machine; compare ratios taken in one run.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import foretell
from foretell.model.analysis import analyze

COMMAND = str(Path(sys.executable).parent / "foretell")
LARGE = "llama3-70b:seq=4096,dtype=bf16"


def _run(*arguments: str, repeats: int = 7) -> tuple[float, float]:
    """Median and spread of the wall time of one command."""
    times: list[float] = []
    for _ in range(repeats):
        start = time.perf_counter()
        subprocess.run(arguments, check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    return statistics.median(times), max(times) - min(times)


def _warm(spec: str, repeats: int = 7) -> tuple[float, float]:
    """The same inside a process that has done it once."""
    analyze(foretell.load(spec))
    times: list[float] = []
    for _ in range(repeats):
        start = time.perf_counter()
        analyze(foretell.load(spec))
        times.append(time.perf_counter() - start)
    return statistics.median(times), max(times) - min(times)


def _trace() -> tuple[float, float]:
    """Seconds and peak bytes to trace a module of seventy billion parameters."""
    factory = f"{Path(__file__).with_name('large_module.py')}:build"
    start = time.perf_counter()
    subprocess.run([COMMAND, "analyze", factory, "--json"], check=True, capture_output=True)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return seconds, peak


def main() -> None:
    rows: list[tuple[str, str, str]] = []

    def timed(name: str, measured: tuple[float, float], target: str) -> None:
        rows.append((name, f"{measured[0]:.3f} s (spread {measured[1]:.3f})", target))

    timed("python -c pass", _run(sys.executable, "-c", "pass"), "-")
    timed("foretell --help", _run(COMMAND, "--help"), "< 0.3 s")
    timed("foretell analyze resnet50", _run(COMMAND, "analyze", "resnet50"), "-")
    timed("foretell analyze llama3-405b", _run(COMMAND, "analyze", "llama3-405b"), "< 0.5 s")
    timed("the same, process warm", _warm("llama3-405b"), "< 0.5 s")
    for spec in ("llama3-405b", "deepseek-v3", "resnet152"):
        graph = foretell.load(spec)
        operators = sum(len(block.nodes) for block in graph.blocks)
        unfolded = sum(len(block.nodes) * block.times for block in graph.blocks)
        size = f"{len(graph.to_json()) / 1024:.0f} KiB, {operators} of {unfolded} operators"
        rows.append((f"graph of {spec}", size, "small"))
    seconds, peak = _trace()
    rows.append((f"trace {LARGE}", f"{seconds:.1f} s, {peak / 2**30:.2f} GiB", "< 15 s, 1.5 GiB"))
    print(f"foretell {foretell.__version__}, Python {sys.version.split()[0]}, {os.cpu_count()} cores")
    width = max(len(row[0]) for row in rows)
    for name, value, target in rows:
        print(f"{name:<{width}}  {value:<44}  {target}")


if __name__ == "__main__":
    main()
