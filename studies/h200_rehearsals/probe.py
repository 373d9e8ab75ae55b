"""What a rehearsal itself costs on a GPU: how long a sleeping kernel sleeps beside others, and what a message costs
the host.

PYTHONPATH=src python studies/h200_rehearsals/probe.py --out FOLDER
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from foretell.runtime import rehearsed_world as world
from foretell.runtime.sleeping import sleep


def sleeping(busy: bool) -> list[list[float]]:
    """Seconds asked for and seconds slept, alone or beside products that draw all power."""
    device = torch.device("cuda", 0)
    a, b = (torch.randn(8192, 8192, device=device, dtype=torch.bfloat16) for _ in range(2))
    side, rows = torch.cuda.Stream(device), list[list[float]]()
    for seconds in (2e-5, 1e-4, 1e-3, 1e-2):
        for _ in range(3):
            torch.cuda.synchronize()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            for _ in range(60 if busy else 0):
                a @ b
            with torch.cuda.stream(side):
                if busy:
                    torch.cuda._sleep(20_000_000)
                begin.record()
                sleep(seconds, device)
                end.record()
            torch.cuda.synchronize()
            rows.append([seconds, begin.elapsed_time(end) / 1e3])
    return rows


def by_host() -> float:
    """Seconds of the host for an all-reduce of little."""
    tensor = torch.zeros(1024, device="cuda")
    for _ in range(20):
        dist.all_reduce(tensor)
    torch.cuda.synchronize()
    rows: list[float] = []
    for _ in range(100):
        begin = time.perf_counter()
        dist.all_reduce(tensor)
        rows.append(time.perf_counter() - begin)
    torch.cuda.synchronize()
    return median(rows)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--out", type=Path, required=True)
    options = asked.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.cuda.set_device(0)
    found: dict[str, Any] = {"alone": sleeping(False), "busy": sleeping(True)}
    world.begun(0, 64)
    price = [0.0]
    here = world.RehearsedWorld(lambda one: price[0]).enter()
    found["host, at once"] = by_host()
    price[0] = 1e-6
    found["host, priced"] = by_host()
    found["messages"] = len(here.seen)
    (options.out / "probe.json").write_text(json.dumps(found))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
