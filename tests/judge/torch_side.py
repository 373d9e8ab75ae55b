"""Torch's side of the comparison: a process that records cases one after the other, each asked for by a line."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import TracebackType

import msgspec

from judge.cases import Case, Collective, Observed

TESTS = Path(__file__).parents[1]


class Judge:
    """Starts torch once and asks it about many cases; each begins and ends its own process group.

    with Judge() as judge:
        collectives = judge.observe(Case(model="llama3-8b:layers=2", shard=8))
    """

    def __init__(self) -> None:
        self._seen: dict[Case, tuple[Collective, ...]] = {}

    def __enter__(self) -> Judge:
        self._noise = tempfile.TemporaryFile("w+")  # what torch warns of, and why it ended if it did
        self._child = subprocess.Popen(
            [sys.executable, "-m", "judge.recorder"],
            cwd=TESTS,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._noise,
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._child.stdin and self._child.stdout
        self._child.stdin.close()
        self._child.wait(timeout=600)
        self._child.stdout.close()
        self._noise.close()

    def observe(self, case: Case) -> tuple[Collective, ...]:
        """What rank 0 does in one step; a case that was asked for before is answered from memory."""
        if case not in self._seen:
            self._seen[case] = self.observe_again(case)
        return self._seen[case]

    def observe_again(self, case: Case) -> tuple[Collective, ...]:
        """The same without looking whether it is known."""
        assert self._child.stdin and self._child.stdout
        self._child.stdin.write(msgspec.json.encode(case) + b"\n")
        self._child.stdin.flush()
        line = self._child.stdout.readline()
        if not line:
            self._noise.seek(0)
            raise RuntimeError(f"torch ended on {case}:\n{self._noise.read()[-2000:]}")
        observed = msgspec.json.decode(line, type=Observed)
        if observed.failure:
            raise RuntimeError(f"torch cannot run {case}:\n{observed.failure}")
        return observed.collectives


def counts(collectives: tuple[Collective, ...]) -> dict[tuple[str, str], int]:
    """How many collectives of each kind run along each axis."""
    found: Counter[tuple[str, str]] = Counter()
    for one in collectives:
        found[one.kind, one.axis] += one.count
    return dict(found)


def payloads(collectives: tuple[Collective, ...]) -> dict[tuple[str, str, int], int]:
    """How many of each kind, axis and payload: the bytes that rank 0 puts in."""
    found: Counter[tuple[str, str, int]] = Counter()
    for one in collectives:
        found[one.kind, one.axis, one.input_bytes] += one.count
    return dict(found)


def traffic(collectives: tuple[Collective, ...]) -> dict[tuple[str, str, int, int], int]:
    """How many of each kind, axis, input and output bytes, whenever they are."""
    found: Counter[tuple[str, str, int, int]] = Counter()
    for one in collectives:
        found[one.kind, one.axis, one.input_bytes, one.output_bytes] += one.count
    return dict(found)
