"""Proof that a change moves no digit: a base commit and the working tree answer the same questions, compared with `==`.

make replay [BASE=<commit>] [SIZE=0.1]

The base is put into a folder of its own. Each tree answers with its own `tests/replay/run.py`, on this machine, with
this interpreter: once with compiled kernels, and a part once more without numba. What the base said is kept under
`build/replay`, so that asking again takes half the time.

With --accept the moves are meant: they are added to `tests/replay/moves.md` with the reason, and the sample that the
tests compare with is stored anew.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import compare
import numpy
import sample
from cases import Case, cases
from compare import Digits, Move

TREE = Path(__file__).parents[2]
KEPT = TREE / "build" / "replay"
RUNNER = Path("tests/replay/run.py")
MOVES = Path(__file__).with_name("moves.md")
UNCOMPILED = 5
"""Without numba every so manyth case is asked: a law says that both ways have the same digits."""


class Job(NamedTuple):
    """A tree that answers, with or without compiled kernels; a commit that it stands for, or none: as it is now."""

    tree: Path
    runner: Path
    cases: list[Case]
    numba: bool
    commit: str = ""

    @property
    def key(self) -> str:
        """All that its digits depend on, of a commit."""
        versions = (sys.version, numpy.__version__, platform.node(), platform.processor())
        parts = (self.commit, self.numba, self.cases, self.runner.read_text(), versions)
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    @property
    def name(self) -> str:
        return f"{self.commit[:9] or 'working tree'}, {'with' if self.numba else 'without'} numba"


def main() -> int:
    said = _arguments()
    base = _git("rev-parse", "--verify", f"{said.base or _left_main()}^{{commit}}")
    about = _git("log", "-1", "--format=%h %s", base)
    print(f"base {about}", flush=True)
    with _checked_out(base) as tree:
        runner = tree / RUNNER if (tree / RUNNER).is_file() else TREE / RUNNER
        jobs: list[Job] = []
        for asked, numba in ((cases(said.size), True), (cases(said.size / UNCOMPILED), False)):
            jobs += [Job(tree, runner, asked, numba, base), Job(TREE, TREE / RUNNER, asked, numba)]
        with ThreadPoolExecutor(said.jobs) as pool:
            before, after, before_plain, after_plain = pool.map(_answers, jobs)
    moves = _told(before, after, "with numba") + _told(before_plain, after_plain, "without numba")
    if said.accept:
        _accept(moves, said.accept, about, len(after))
        return 0
    return 1 if moves else 0


def _arguments() -> Any:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="", help="a commit; else where this branch left main")
    parser.add_argument("--size", type=float, default=1.0, help="share of the cases")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--accept", metavar="REASON", help="store the sample anew, and the moves with their reason")
    said = parser.parse_args()
    if said.accept is not None and not said.accept.strip():
        parser.error('a reason is needed: make replay-accept REASON="why the numbers move"')
    return said


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=TREE, check=True, capture_output=True, text=True).stdout.strip()


def _left_main() -> str:
    for main in ("origin/main", "main"):
        found = subprocess.run(["git", "merge-base", "HEAD", main], cwd=TREE, capture_output=True, text=True)
        if found.returncode == 0:
            return found.stdout.strip()
    raise SystemExit("no main branch here: make replay BASE=<commit>")


@contextmanager
def _checked_out(commit: str) -> Iterator[Path]:
    """The files of a commit in a folder that goes again."""
    with tempfile.TemporaryDirectory(prefix="replay-") as folder:
        archive = subprocess.run(["git", "archive", commit], cwd=TREE, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        yield Path(folder)


def _answers(job: Job) -> Digits:
    """What a tree says; that of a commit is kept."""
    kept = KEPT / (f"{job.commit[:9]}-{job.key}.jsonl" if job.commit else f"now-{job.numba}.jsonl")
    if not job.commit or not kept.is_file():
        start = time.monotonic()
        _run(job, kept)
        print(f"{job.name}: {time.monotonic() - start:.0f} s", flush=True)
    return compare.read(kept)


def _run(job: Job, out: Path) -> None:
    KEPT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="replay-") as folder:
        asked, digits = Path(folder) / "cases.json", Path(folder) / "digits.jsonl"
        asked.write_text(json.dumps(job.cases))
        words = [sys.executable, str(job.runner), str(asked), str(digits)]
        paths = {"PYTHONPATH": str(job.tree / "src"), "FORETELL_RECORDS": str(Path(folder) / "records")}
        how = [] if job.numba else ["--without-numba"]
        subprocess.run([*words, *how], env={**os.environ, **paths, "PYTHONHASHSEED": "0"}, check=True)
        shutil.move(digits, out)


def _told(before: Digits, after: Digits, how: str) -> list[Move]:
    """What differs, printed."""
    print(f"\n{how}: {len(after):,} cases, {sum(compare.counted(after).values()):,} values")
    found = list(compare.moves(before, after))
    lost = compare.crashes(after)
    for text in lost[:10]:
        print(f"  no answer: {text}")
    if lost:
        print(f"  {len(lost)} cases crash")
    print(compare.table(compare.by_kind(found)) if found else "  every one of them equal")
    return found


def _accept(moves: list[Move], reason: str, about: str, count: int) -> None:
    with tempfile.TemporaryDirectory(prefix="replay-") as folder:
        out = Path(folder) / "digits.jsonl"
        _run(Job(TREE, TREE / RUNNER, sample.chosen(cases()), numba=False), out)
        sample.write(sample.kept(compare.read(out), "digest:"))
    print(f"\n{sample.FILE.relative_to(TREE)} is stored anew")
    if moves:
        with MOVES.open("a") as file:
            file.write(f"\n## {reason.strip()}\n\nAgainst {about}, {count:,} cases.\n\n")
            file.write(compare.markdown(compare.by_kind(moves)) + "\n")
        print(f"{MOVES.relative_to(TREE)} has the moves, for the changelog")


if __name__ == "__main__":
    sys.exit(main())
