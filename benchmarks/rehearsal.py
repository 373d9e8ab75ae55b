"""One rehearsed rank against real gloo ranks, in seconds: `python benchmarks/rehearsal.py [RANKS]` on a quiet machine.

Messages are priced on this machine, as it was calibrated (`foretell calibrate`), so a difference is theirs or the
rehearsal's. There is a core for each rank, or the real ones share some. `--out FILE` keeps all steps, a line a plan;
`--seconds` ends it after a plan. The slowest rank of each step of the real ones is compared with the slowest kind of
rank: of a pipeline all, else rank 0.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from statistics import median

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # this machine is its processor

from foretell.runtime.assignment import Assignment, Rehearsal, Report
from foretell.runtime.launch import Ranks

MODEL = "gpt:layers=8,hidden=256,heads=8,vocab=1024,seq=128"
PLANS = ("dp{0}", "dp{0}:zero1", "dp{0}:zero3", "tp{0}", "pp{0} +m{0}", "pp{0}:gpipe +m{0}")


def _step(reports: tuple[Report, ...]) -> float:
    return median(max(times) for times in zip(*(one.steps for one in reports), strict=True))


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("count", type=int, nargs="?", default=2)
    asked.add_argument("--steps", type=int, default=20)
    asked.add_argument("--seconds", type=float, default=600.0)
    asked.add_argument("--out", type=Path)
    options = asked.parse_args()
    count, begin = options.count, time.perf_counter()
    print(f"{'plan':<20}{'together, ms':>14}{'alone, ms':>12}{'difference':>12}")
    with Ranks() as ranks:
        for plan in (text.format(count) for text in PLANS):
            if time.perf_counter() - begin > options.seconds:
                print(f"{plan:<20}no time left")
                continue
            asked_of = {"model": MODEL, "plan": plan, "batch": 4 * count, "steps": options.steps}
            together = ranks.run(Assignment(**asked_of))
            kinds = range(count) if "pp" in plan else range(1)
            alone = [ranks.run(Assignment(**asked_of, rehearsal=Rehearsal(one, "this-machine"))) for one in kinds]
            real, most = _step(together), max(map(_step, alone))
            print(f"{plan:<20}{real * 1e3:>14.1f}{most * 1e3:>12.1f}{most / real - 1:>+12.1%}", flush=True)
            if options.out:
                phases = [[one.phases for one in found] for found in (together, *alone)]
                steps = [[list(one.steps) for one in found] for found in (together, *alone)]
                row = {"plan": plan, "together": steps[0], "alone": steps[1:], "phases": phases}
                with options.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
