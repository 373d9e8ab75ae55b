"""How fast the search is, on spaces that stay the same (search_spaces.toml): each in a process of its own, on one core.

    python benchmarks/search.py [NAME ...] [--seconds 10] [--warm] [--exhaustive] [--bounds]

Seconds are those of the processor since the process began, imports included: to the first plan that is sure to fit,
and to the end. `--seconds` interrupts a search after so many. `--warm`: once more in the same process. `--exhaustive`
prices every plan. `--bounds` prices all plans of some forty meshes, and tells how far below their price bounds lie.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

import numpy

from foretell.oracle import planning, search
from foretell.oracle.mesh_rows import MeshRows
from foretell.oracle.request import SearchEffort, read
from foretell.oracle.space import Space

SPACES = tomllib.loads(Path(__file__).with_name("search_spaces.toml").read_text())
MESHES = 40
TITLES = ("first", "end", "plans", "priced", "looked", "fastest", "gap", "a second")
WIDTHS = (6, 6, 9, 9, 6, 9, 6, 9)
HEAD = " ".join([" " * 22, *(f"{title:>{width}}" for title, width in zip(TITLES, WIDTHS, strict=True))])


def space_of(name: str) -> Space:
    (question,) = planning.questions(read(**SPACES[name]))
    return planning.space_of(question)


def searched(name: str, seconds: float, exhaustive: bool, warm: bool) -> None:
    begun = 0.0 if not warm else time.process_time()
    first: list[float] = []

    def watch(now: search.FoundSoFar) -> None:
        taken = time.process_time() - begun
        if now.fastest < float("inf") and not first:
            first.append(taken)
        if taken > seconds:
            raise KeyboardInterrupt

    found = search.search(space_of(name), watch=watch, effort=SearchEffort(exhaustive=exhaustive))
    taken = time.process_time() - begun
    best = found.best.step_seconds if found.best else float("inf")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{name + (' again' if warm else ''):22} {(first or [taken])[0]:6.2f} {taken:6.2f}"
        f" {found.evaluated + found.excluded:9,} {found.evaluated:9,} {found.seen:6.0%} {best:9.4g}"
        f" {1 - found.least_seconds / best:6.1%} {(found.evaluated + found.excluded) / taken:9,.0f} {memory:5.2f} GiB"
        f"  {found.best.plan if found.best else 'nothing fits'}",
        flush=True,
    )


def bounds(name: str) -> None:
    space = space_of(name)
    every = space.every_mesh
    pricing = search._Search(space, 0.0, lambda now: None, 1, SearchEffort(exhaustive=True))
    for axes in space.meshes(every[:: max(1, len(every) // MESHES)]):
        pricing._add(axes)
    pricing._evaluate()
    names, seconds, memory = (numpy.concatenate(parts) for parts in zip(*pricing.priced, strict=True))
    price = {tuple(where): (seconds[at], memory[at]) for at, where in enumerate(names.tolist())}
    shares: list[tuple[float, float]] = []
    for number, axes in enumerate(pricing.meshes):
        for own in pricing.alike:
            rows = MeshRows(pricing.parts, axes, own)
            for which in rows.allowed if rows.ways else ():
                variants = rows._variants()
                least = (rows.least_seconds(pricing.bounds, which), rows.least_bytes(pricing.bounds, which))
                each = zip(*least, variants.place.tolist(), variants.microbatches.tolist(), strict=True)
                for taken, held, place, microbatches in each:
                    full = price[number, which, place, microbatches]
                    shares.append((taken / full[0], held / full[1]))
    told = ((numpy.median(own), min(own), max(own)) for own in zip(*shares, strict=True))
    each = (f"median {middle:.2f}, least {low:.2f}, most {high:.3f}" for middle, low, high in told)
    print(f"{name:14} {len(shares):,} plans of {len(pricing.meshes)} meshes, bound / price: {'; bytes: '.join(each)}")


def main(names: Sequence[str], given: argparse.Namespace) -> None:
    if len(names) == 1 and given.inside:
        if given.bounds:
            return bounds(names[0])
        for heat in range(1 + given.warm):
            searched(names[0], given.seconds, given.exhaustive, bool(heat))
        return None
    if not given.bounds:
        print(HEAD)
    quiet = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    for name in names:
        options = [one for one in sys.argv[1:] if one not in given.names]
        subprocess.run([sys.executable, __file__, name, "--inside", *options], env=quiet, check=True)
    return None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SPACES))
    parser.add_argument("--seconds", type=float, default=float("inf"))
    for option in ("warm", "exhaustive", "bounds", "inside"):
        parser.add_argument(f"--{option}", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    main(given.names or list(SPACES), given)
