"""Guards the ranks of a run: which have ended, which stand still, and where each of them is."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from foretell.runtime import journal
from foretell.runtime.assignment import Failure
from foretell.runtime.journal import At

GRACE = 3.0
"""Seconds after the first failure in which others may tell what they know of it."""

START = 300.0
"""Seconds at least in which ranks come to their first step, however short a step may be: models are built then."""

STOPPED = 5.0
"""Seconds after which a rank that somebody has stopped (SIGSTOP) is given up."""

LOST_RANK = "LostRank"
"""The kind of a failure that is no error of the program: a signal ended or stopped a rank."""

LOOK = 0.05
"""Seconds between two looks."""


class Guard:
    """The ranks of a run, by their processes."""

    def __init__(self, ranks: dict[int, int], folder: Path, patience: float) -> None:
        self.ranks, self._left = sorted(ranks.values()), dict(ranks)
        self._folder, self._patience = folder, patience
        self._begun = time.monotonic()
        self._stopped: dict[int, float] = {}
        self.failed: dict[int, int] = {}  # rank to how it ended
        self.still: Failure | None = None

    def over(self) -> bool:
        """Wait for all; whether all went well. When one fails the others would wait for it for ever: end them."""
        until = float("inf")
        while self._left and time.monotonic() < until:
            if not self._one_ended():
                time.sleep(LOOK)
                self.still = self.still or self._standing_still()
            if self.failed or self.still:
                until = min(until, time.monotonic() + (GRACE if self.failed else 0.0))
        self._end()
        return not self.failed and not self.still

    def _one_ended(self) -> bool:
        """Whether a rank has. One that has written its report has done all of its work, however it ends: threads of
        gloo's may abort it when others close what they listen to."""
        child, status = os.waitpid(-1, os.WNOHANG)
        if child in self._left:
            rank, code = self._left.pop(child), os.waitstatus_to_exitcode(status)
            if code and not (self._folder / f"report-{rank}.json").is_file():
                self.failed[rank] = code
        return bool(child)

    def _standing_still(self) -> Failure | None:
        """A rank that was stopped, or one that all others wait for."""
        now = time.monotonic()
        for child, rank in self._left.items():
            since = self._stopped.setdefault(rank, now) if _state(child) == "T" else self._stopped.pop(rank, now)
            if now - since > STOPPED:
                what = f"rank {rank} has been stopped for {STOPPED:g} s (SIGSTOP)"
                return Failure(LOST_RANK, what, self.where(rank), f"it was process {child}; the run was ended")
        last = {rank: self._at(rank) for rank in self._left.values()}
        waits = max(self._patience, START) if any(one.begins for one in last.values()) else self._patience
        if now - max((one.since for one in last.values()), default=now) < waits:
            return None
        rank = min(last, key=lambda rank: last[rank].order)
        what = f"no rank went on for {waits:g} s; rank {rank} is the furthest behind"
        return Failure("BadInput", what, self.where(rank), "--patience, if a step may take that long")

    def _at(self, rank: int) -> At:
        return journal.at(self._folder, rank) or At(0, journal.START, self._begun)

    def where(self, rank: int) -> str:
        """Where a rank was last seen, for people."""
        return str(self._at(rank))

    def _end(self) -> None:
        for child in self._left:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _state(process: int) -> str:
    """One letter of proc(5): T for a process that a signal has stopped."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def ended_by(rank: int, code: int, where: str) -> Failure:
    """A rank that a signal ended."""
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    memory = "the kernel does so when memory runs out: fewer samples, or +recompute:block"
    what = f"rank {rank} was ended by signal {-code} ({name})"
    return Failure(LOST_RANK, what, where, memory if -code == signal.SIGKILL else "")
