"""Guards the ranks of a run: which have ended, which stand still, and where each of them is."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

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

CONSEQUENCE = "Consequence"
"""The kind of a failure of a rank that only misses another one."""

LOOK = 0.05
"""Seconds between two looks."""


class Guard:
    """The ranks of a run, by their processes."""

    def __init__(self, ranks: dict[int, int], folder: Path, patience: float) -> None:
        self.ranks, self._left = sorted(ranks.values()), dict(ranks)
        self._folder, self._patience = folder, patience
        self._begun = time.monotonic()
        self._stopped: dict[int, float] = {}
        self.failed: dict[int, int] = {}  # rank to how it ended, in the order in which that was seen
        self.ended: tuple[int, ...] = ()  # ranks that were still at work when all were ended
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
        gloo's may abort it when others close what they listen to. One that has not failed, even if it says 0."""
        child, status = os.waitpid(-1, os.WNOHANG)
        if child in self._left:
            rank, code = self._left.pop(child), os.waitstatus_to_exitcode(status)
            if not (self._folder / f"report-{rank}.json").is_file():
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
        rank = self._furthest_behind(last)
        what = f"no rank went on for {waits:g} s; rank {rank} is the furthest behind"
        return Failure("BadInput", what, self.where(rank), "--patience, if a step may take that long")

    def _furthest_behind(self, ranks: Iterable[int]) -> int:
        return min(ranks, key=lambda rank: self._at(rank).order)

    # why it ended

    def cause(self, said: dict[int, Failure]) -> Failure:
        """The first cause, by how each rank ended and not by who complained first: `said` is what ranks wrote of it.

        A rank that ended without a word did so of itself. So did one that a signal ended, but for SIGABRT: gloo's
        threads abort ranks whose peers are gone. Then come errors of a rank's own, and a rank that stands still. That
        another rank was missed is the consequence of something: of a rank that never ended, if there is one.
        """
        silent = {rank: code for rank, code in self.failed.items() if rank not in said}
        aborted = [rank for rank, code in silent.items() if code == -signal.SIGABRT]
        found = [self._ended_by(rank, code) for rank, code in silent.items() if rank not in aborted]
        own = sorted((one for one in said.items() if one[1].kind != CONSEQUENCE), key=lambda one: one[1].at)
        found += [self._placed(rank, one) for rank, one in own]
        found += [self.still] if self.still else []
        found += [self._ended_by(rank, silent[rank]) for rank in aborted]
        if self.ended and not found:
            rank = self._furthest_behind(self.ended)
            what = f"rank {rank} did not go on, and the others gave up waiting for it"
            found.append(Failure("BadInput", what, self.where(rank)))
        return found[0] if found else self._placed(*min(said.items(), key=lambda one: one[1].at))

    def _at(self, rank: int) -> At:
        return journal.at(self._folder, rank) or At(0, journal.START, self._begun)

    def where(self, rank: int) -> str:
        """Where a rank was last seen, for people."""
        return str(self._at(rank))

    def _placed(self, rank: int, failure: Failure) -> Failure:
        return failure if failure.where else msgspec.structs.replace(failure, where=self.where(rank))

    def _ended_by(self, rank: int, code: int) -> Failure:
        """A rank that a signal ended, or that left without a word."""
        if code >= 0:
            what = (
                f"rank {rank} ended with exit code {code} {'and said no word' if code else 'before its work was done'}"
            )
            fix = "look in the model's code for who calls os._exit or exit"
            return Failure("BadInput", what, self.where(rank), fix)
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        memory = "the kernel does so when memory runs out: fewer samples, or +recompute:block"
        what = f"rank {rank} was ended by signal {-code} ({name})"
        return Failure(LOST_RANK, what, self.where(rank), memory if -code == signal.SIGKILL else "")

    def _end(self) -> None:
        self.ended = tuple(self._left.values())
        for child in self._left:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _state(process: int) -> str:
    """One letter of proc(5): T for a process that a signal has stopped."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
