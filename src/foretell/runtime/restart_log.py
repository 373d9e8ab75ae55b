"""The lives of a run that is restarted: when ranks began, wrote checkpoints and died; and the goodput that comes of it.

They are lines in the folder of the run's checkpoints, because no process outlives all of them.
"""

from __future__ import annotations

import contextlib
import math
import platform
import random
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import msgspec

from foretell.files import append_lines, read_bytes

FILE = "lives.jsonl"

BEGAN, WROTE, DIED, ENDED, PASSED = "began", "wrote", "died", "ended", "passed over"


class RunEvent(msgspec.Struct, frozen=True):
    """Something that happened to a run after so many measured steps."""

    what: str
    step: int
    at: float  # seconds of the monotonic clock, which nobody sets: it begins when the machine does
    seconds: float = 0.0  # that it took
    rank: int = 0
    boot: str = ""  # which start of which machine that clock is of
    date: float = 0.0  # seconds of the clock on the wall, between two boots
    why: str = ""  # a checkpoint was passed over


def _seconds(before: RunEvent, after: RunEvent) -> float:
    """From one to the other. Clocks on the wall are set now and then: theirs is a guess, and never less than none."""
    if before.boot == after.boot:
        return after.at - before.at
    return max(0.0, after.date - before.date) if before.date else 0.0


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return platform.node()


def note(folder: Path, what: str, step: int, seconds: float = 0.0, rank: int = 0, why: str = "") -> None:
    """Add a line: one write, so that lines of several ranks do not mix, and that the next life finds it."""
    event = RunEvent(what, step, time.monotonic(), seconds, rank, _boot(), time.time(), why)
    append_lines(folder / FILE, msgspec.json.encode(event))


def events(folder: Path) -> list[RunEvent]:
    """All that happened so far; nothing where nobody wrote. A line that was cut is passed over."""
    path = folder / FILE
    lines = read_bytes(path, "log of restarts").splitlines() if path.exists() else []
    found: list[RunEvent] = []
    for line in lines:
        with contextlib.suppress(msgspec.DecodeError):
            found.append(msgspec.json.decode(line, type=RunEvent))
    return found


def last_checkpoint(folder: Path) -> int | None:
    """The measured steps that the last checkpoint has."""
    return next((one.step for one in reversed(events(folder)) if one.what == WROTE), None)


# failures that are rehearsed


class Fate(msgspec.Struct, frozen=True, kw_only=True):
    """When a rank is to die: before these steps, once each, or at random this often in the mean."""

    steps: tuple[int, ...] = ()
    mtbf: float = 0.0  # seconds; 0: nobody dies at random
    seed: int = 0

    def __bool__(self) -> bool:
        return bool(self.steps or self.mtbf)

    def of_life(self, number: int, ranks: int) -> Doom:
        """What is due in one life of a run; the same for the same seed."""
        draws = random.Random(f"{self.seed} {number}")
        rank = draws.randrange(ranks)
        after = draws.expovariate(1 / self.mtbf) if self.mtbf else math.inf
        return Doom(rank, self.steps[number] if number < len(self.steps) else -1, after)


class Doom(msgspec.Struct, frozen=True):
    """The end of one life: a rank, and the step or the seconds after which it dies."""

    rank: int
    step: int  # -1: none
    seconds: float

    def due(self, step: int, seconds: float) -> bool:
        return step == self.step or seconds >= self.seconds


# what it came to


class RestartLog(msgspec.Struct, frozen=True, kw_only=True):
    """A run with its restarts; the seconds add up to those by the clock on the wall."""

    failures: int
    checkpoints: int
    seconds: float  # from the first measured step to the end
    productive_seconds: float  # of steps that count
    goodput: float  # their share
    checkpoint_seconds: float  # of one, in the mean
    restart_seconds: float  # from a failure until steps go on, in the mean
    lost_seconds: float  # of repeated work, and unattributed
    interval: float  # seconds of steps between two checkpoints
    mtbf: float  # that was asked for; 0: failures came by themselves, or at set steps
    not_reached: tuple[int, ...] = ()  # steps before which a rank was to die, and none did
    passed_over: tuple[str, ...] = ()  # checkpoints that were not as they had been written: the one before was taken


def restarts(
    found: Sequence[RunEvent], steps: Sequence[float], every: int, mtbf: float, fail_at: Sequence[int] = ()
) -> RestartLog:
    """What moments come to; `steps` are the seconds of those that count."""
    passed = tuple(f"step {one.step}: {one.why}" for one in found if one.what == PASSED)
    found = [one for one in found if one.what != PASSED]
    productive = sum(steps)
    # one that was asked to go on later rested in between
    seconds = sum(_seconds(before, after) for before, after in pairwise(found) if before.what != ENDED)
    writing = [one.seconds for one in found if one.what == WROTE]
    restarts = list(_restarts(found))
    return RestartLog(
        failures=len(restarts),
        checkpoints=len(writing),
        seconds=seconds,
        productive_seconds=productive,
        goodput=productive / seconds if seconds else 0.0,
        checkpoint_seconds=fmean(writing) if writing else 0.0,
        restart_seconds=fmean(restarts) if restarts else 0.0,
        lost_seconds=max(0.0, seconds - productive - sum(writing) - sum(restarts)),
        interval=every * productive / len(steps) if steps else 0.0,
        mtbf=mtbf,
        not_reached=tuple(fail_at[sum(one.what == DIED for one in found) :]),  # one for each life
        passed_over=passed,
    )


def _restarts(found: Sequence[RunEvent]) -> Iterator[float]:
    """Seconds between the end of a life and the first step of the next. A rank that others killed left no line: then it
    is counted from the last that was written."""
    for before, after in pairwise(found):
        if after.what == BEGAN and before.what != ENDED:
            yield _seconds(before, after)
