"""Ranks that end badly, in each way, on each rank, under several plans: is the right one named, and how soon?

    python benchmarks/rank_faults.py [--faults 24] [--seed 0]

Ends with 1 if a rank is blamed that did nothing wrong. One process brings up the ranks of all faults, so each also
shows that the one before left nothing behind.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "torchrun"))

from endings import Ending

from foretell.runtime.assignment import Assignment, RunFailed
from foretell.runtime.launch import Ranks

MODELS = Path(__file__).parents[1] / "tests" / "torchrun" / "endings.py"

KINDS = (
    "exit_7",
    "exit_1",
    "exit_0",
    "leave_3",
    "signal_9",
    "signal_11",
    "signal_6",
    "signal_15",
    "error",
    "backward_error",
    "optimizer_error",
    "backward_exit_7",
    "optimizer_signal_9",
    "memory",
    "diverge",
    "hang",
    "signal_19",
)
"""As `tests/torchrun/endings.py` reads them."""

PLANS = {
    "dp2": 2,
    "dp4": 4,
    "dp4:zero3": 4,
    "dp2:zero1": 2,
    "dp3 +bf16": 3,
    "pp2:1f1b +m2": 2,
    "filter2 dp2": 4,
    "ps3": 3,
    "ring4": 4,
    "local2:tau2": 2,
}
"""With their ranks."""

OWN_PACE = ("ps3", "ring4", "local2:tau2")
"""Their ranks step without an optimizer of torch's, so none can fail there."""

PATIENCE = 10.0
"""Seconds after which a hang is given up here."""


class Fault(NamedTuple):
    ending: Ending
    plan: str
    ranks: int


def faults(count: int, seed: int) -> list[Fault]:
    """Every kind in turn; plans, ranks and moments are drawn."""
    draws = random.Random(seed)
    found: list[Fault] = []
    for at in range(count):
        how = KINDS[at % len(KINDS)]
        plan = draws.choice([one for one in PLANS if one not in OWN_PACE or not how.startswith("optimizer")])
        found.append(Fault(Ending(how, draws.randrange(PLANS[plan]), draws.randrange(6)), plan, PLANS[plan]))
    return found


def blamed(ranks: Ranks, fault: Fault) -> tuple[int | None, str]:
    """The rank that is named first, and all that is said in a line."""
    model = f"{MODELS}:{fault.ending}"
    asked = Assignment(model=model, plan=fault.plan, batch=12, optimizer="sgd", patience=PATIENCE)
    try:
        ranks.run(asked, seconds=600.0)
    except RunFailed as problem:
        lines = problem.what.strip().splitlines()
        named = re.search(r"rank (\d+)", lines[0])
        more = f" ... {lines[-1].strip()}" if len(lines) > 1 else ""
        return int(named[1]) if named else None, f"{lines[0]}{more} ({problem.where})"
    return None, "it went well"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    right = 0
    with Ranks() as ranks:
        for fault in faults(asked.faults, asked.seed):
            start = time.monotonic()
            named, said = blamed(ranks, fault)
            verdict = "right" if named == fault.ending.rank else "WRONG"
            right += verdict == "right"
            where = f"rank {fault.ending.rank} of {fault.ranks}, {fault.plan}"
            took = time.monotonic() - start
            print(f"{verdict}  {fault.ending.how:<18} {where:<24} {took:5.1f} s  {said[:150]}", flush=True)
    print(f"{right} of {asked.faults} ranks named right")
    sys.exit(right < asked.faults)


if __name__ == "__main__":
    main()
