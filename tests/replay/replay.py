"""Proof that a change moves no digit: a base commit and the working tree answer the same questions, compared with `==`.

make replay [BASE=<commit>] [SIZE=0.1]

The base is put into a folder of its own. Each tree answers with its own `tests/replay/run.py`, on this machine, with
this interpreter: once with compiled kernels, and a part once more without numba. What the base said is kept under
`build/replay`, so that asking again takes half the time.
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
from compare import Digits

HERE = Path(__file__).parent
TREE = HERE.parents[1]
KEPT = TREE / "build" / "replay"
RUNNER = Path("tests/replay/run.py")
UNCOMPILED = 3
"""Of the cases without numba every so manyth is asked: a law says that both have the same digits."""


class Job(NamedTuple):
    """A tree that answers, with or without compiled kernels."""

    tree: Path
    runner: Path
    numba: bool


def main() -> int:
    said = _arguments()
    base = _git("rev-parse", "--verify", f"{said.base}^{{commit}}").strip()
    print(f"base {_git('log', '-1', '--format=%h %s', base).strip()}", flush=True)
    cases = _drawn(said.size)
    few = _uncompiled(cases)
    print(f"{len(cases):,} cases, {len(few):,} of them also without numba", flush=True)
    with _checked_out(base) as tree:
        own = tree / RUNNER
        runner = own if own.is_file() else TREE / RUNNER
        jobs = [
            (job, asked)
            for numba, asked in ((True, cases), (False, few))
            for job in (Job(tree, runner, numba), Job(TREE, TREE / RUNNER, numba))
        ]
        with ThreadPoolExecutor(said.jobs) as pool:
            found = list(pool.map(lambda one: _answers(one[0], one[1], base if one[0].tree != TREE else ""), jobs))
    return max(_judged(found[0], found[1], "with numba"), _judged(found[2], found[3], "without numba"))


def _arguments() -> Any:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="", help="a commit; else where this branch left main")
    parser.add_argument("--size", type=float, default=1.0, help="share of the cases")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    said = parser.parse_args()
    said.base = said.base or _left_main()
    return said


def _left_main() -> str:
    for main in ("origin/main", "main"):
        found = subprocess.run(["git", "merge-base", "HEAD", main], cwd=TREE, capture_output=True, text=True)
        if found.returncode == 0:
            return found.stdout.strip()
    raise SystemExit("no main branch here: make replay BASE=<commit>")


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=TREE, check=True, capture_output=True, text=True).stdout


@contextmanager
def _checked_out(commit: str) -> Iterator[Path]:
    """The files of a commit in a folder that goes again."""
    folder = Path(tempfile.mkdtemp(prefix="replay-"))
    try:
        archive = subprocess.Popen(["git", "archive", commit], cwd=TREE, stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "-C", str(folder)], stdin=archive.stdout, check=True)
        if archive.wait():
            raise SystemExit(f"git archive {commit} failed")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _environment(tree: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONHASHSEED": "0", "FORETELL_RECORDS": os.devnull}


def _drawn(size: float) -> list[dict[str, Any]]:
    """The cases, drawn by the working tree."""
    draw = f"import json, cases; print(json.dumps(cases.cases({size})))"
    done = subprocess.run(
        [sys.executable, "-c", draw], cwd=HERE, env=_environment(TREE), check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout)


def _uncompiled(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    by_question: dict[str, list[dict[str, Any]]] = {}
    for case in cases:
        by_question.setdefault(case["ask"], []).append(case)
    return [case for own in by_question.values() for case in own[::UNCOMPILED]]


def _answers(job: Job, cases: list[dict[str, Any]], commit: str) -> Digits:
    """What a tree says; that of a commit is kept."""
    key = _key(job, cases, commit)
    kept = KEPT / f"{commit[:12]}-{key}.jsonl"
    if commit and kept.is_file():
        return compare.read(kept)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="replay-") as folder:
        asked, out = Path(folder) / "cases.json", Path(folder) / "digits.jsonl"
        asked.write_text(json.dumps(cases))
        how = [] if job.numba else ["--without-numba"]
        subprocess.run(
            [sys.executable, str(job.runner), str(asked), str(out), *how], env=_environment(job.tree), check=True
        )
        if commit:
            KEPT.mkdir(parents=True, exist_ok=True)
            shutil.copy(out, kept)
        else:
            KEPT.mkdir(parents=True, exist_ok=True)
            shutil.copy(out, KEPT / f"now-{'numba' if job.numba else 'plain'}.jsonl")
        found = compare.read(out)
    who = commit[:9] or "working tree"
    print(f"{who}, {'with' if job.numba else 'without'} numba: {time.monotonic() - start:.0f} s", flush=True)
    return found


def _key(job: Job, cases: list[dict[str, Any]], commit: str) -> str:
    """What else the digits of a commit depend on."""
    import numpy

    runner = job.runner.read_text()
    parts = (commit, job.numba, cases, runner, sys.version, numpy.__version__, platform.node(), platform.processor())
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _judged(before: Digits, after: Digits, how: str) -> int:
    counted = compare.counted(after)
    print(f"\n{how}: {len(after):,} cases, {sum(counted.values()):,} values")
    lost = [*compare.crashes(before), *compare.crashes(after)]
    for text in lost[:10]:
        print(f"  no answer: {text}")
    found = list(compare.moves(before, after))
    if not found and not lost:
        print("  every one of them equal")
        return 0
    print(compare.table(found) if found else f"  {len(lost)} cases without an answer")
    return 1


if __name__ == "__main__":
    sys.exit(main())
