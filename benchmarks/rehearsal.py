"""One rehearsed rank against real gloo ranks, in seconds: `python benchmarks/rehearsal.py [RANKS]` on a quiet machine.

Messages are priced on this machine, as it was calibrated (`foretell calibrate`), so a difference is theirs or the
rehearsal's. There is a core for each rank, or the real ones share some.
"""

from __future__ import annotations

import sys
from statistics import median

from foretell.runtime.assignment import Assignment, Rehearsal, Report
from foretell.runtime.launch import Ranks

MODEL = "gpt:layers=8,hidden=256,heads=8,vocab=1024,seq=128"
PLANS = ("dp{0}", "dp{0}:zero1", "dp{0}:zero3", "tp{0}", "pp{0} +m{0}", "pp{0}:gpipe +m{0}")


def _step(reports: tuple[Report, ...]) -> float:
    return median(max(times) for times in zip(*(one.steps for one in reports), strict=True))


def main(count: int) -> None:
    print(f"{'plan':<20}{'together, ms':>14}{'alone, ms':>12}{'difference':>12}")
    with Ranks() as ranks:
        for plan in (text.format(count) for text in PLANS):
            asked = Assignment(model=MODEL, plan=plan, batch=4 * count, steps=20)
            together = _step(ranks.run(asked))
            alone: list[float] = []
            for rank in range(count):
                rehearsal = Rehearsal(rank, "this-machine")
                one = Assignment(model=MODEL, plan=plan, batch=4 * count, steps=20, rehearsal=rehearsal)
                alone.append(_step(ranks.run(one)))
            most = max(alone)
            print(f"{plan:<20}{together * 1e3:>14.1f}{most * 1e3:>12.1f}{most / together - 1:>+12.1%}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
