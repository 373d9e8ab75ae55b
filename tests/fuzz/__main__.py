"""`PYTHONPATH=tests python -m fuzz --inputs 30000 --seed 1`: inputs over all readers, by several processes."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from fuzz.hunt import Hunted, hunt, names

PIECE = 200
"""Inputs that a process goes through at once."""


def main() -> int:
    os.environ["FORETELL_SECONDS"] = "0"  # a slow machine answers later, not otherwise
    asked = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    asked.add_argument("--inputs", type=int, default=30_000, help="in all, in equal parts for every reader")
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--jobs", type=int, default=os.cpu_count())
    asked.add_argument("--reader", action="append", help="only this one; may be repeated")
    asked.add_argument("--number", type=int, help="only the input with this number, as a fault names it")
    asked.add_argument("--minutes", type=float, default=float("inf"), help="end after these, with what was tried")
    asked.add_argument("--keep", type=Path, help="a folder for the inputs that failed")
    given = asked.parse_args()
    chosen = given.reader or names()
    each = -(-given.inputs // len(chosen))
    pieces = [(name, range(at, min(at + PIECE, each))) for at in range(0, each, PIECE) for name in chosen]
    if given.number is not None:
        pieces = [(name, range(given.number, given.number + 1)) for name in chosen]
    found = {name: Hunted(name) for name in chosen}
    until = time.monotonic() + 60 * given.minutes
    with ProcessPoolExecutor(given.jobs, mp_context=multiprocessing.get_context("fork")) as pool:
        for done in as_completed([pool.submit(hunt, name, given.seed, numbers) for name, numbers in pieces]):
            _add(found[done.result().reader], done.result(), given.keep)
            if time.monotonic() > until:
                pool.shutdown(wait=False, cancel_futures=True)
                break
    return _page(found)


def _add(whole: Hunted, part: Hunted, keep: Path | None) -> None:
    whole.inputs += part.inputs
    whole.answers += part.answers
    whole.messages += part.messages
    known = {fault.place for fault in whole.faults}
    for fault in (fault for fault in part.faults if fault.place not in known):
        whole.faults.append(fault)
        print(f"{fault.place}\n  again  --reader {fault.reader} --seed {fault.seed} --number {fault.number}")
        print(f"  ran    {fault.command[:300]}\n{fault.shrunk}\n{fault.trace[-1500:]}", flush=True)
        if keep:
            keep.mkdir(parents=True, exist_ok=True)
            (keep / f"{fault.reader}-{fault.seed}-{fault.number}").write_bytes(fault.content)


def _page(found: dict[str, Hunted]) -> int:
    faults = [fault for one in found.values() for fault in one.faults]
    print(f"{'reader':<22}{'inputs':>9}{'answers':>9}{'messages':>10}{'faults':>8}")
    for one in found.values():
        print(f"{one.reader:<22}{one.inputs:>9,}{one.answers:>9,}{one.messages:>10,}{len(one.faults):>8}")
    every = found.values()
    sums = [sum(getattr(one, name) for one in every) for name in ("inputs", "answers", "messages")]
    print(f"{'all':<22}{sums[0]:>9,}{sums[1]:>9,}{sums[2]:>10,}{len(faults):>8}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
