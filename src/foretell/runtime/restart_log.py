"""The lives of a run that is restarted: when ranks began, wrote checkpoints and died; and the goodput that comes of it.

They are lines in the folder of the run's checkpoints, because no process outlives all of them.
"""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import msgspec

from foretell.files import decode_json, read_bytes

FILE = "lives.jsonl"

BEGAN, WROTE, DIED, ENDED = "began", "wrote", "died", "ended"


class RunEvent(msgspec.Struct, frozen=True):
    """Something that happened to a run after so many measured steps."""

    what: str
    step: int
    at: float  # seconds of the machine's clock
    seconds: float = 0.0  # that it took
    rank: int = 0


def note(folder: Path, what: str, step: int, seconds: float = 0.0, rank: int = 0) -> None:
    """Add a line: one write, so that lines of several ranks do not mix, and that the next life finds it."""
    line = msgspec.json.encode(RunEvent(what, step, time.time(), seconds, rank)) + b"\n"
    file = os.open(folder / FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(file, line)
        os.fsync(file)
    finally:
        os.close(file)


def events(folder: Path) -> list[RunEvent]:
    """All that happened so far; nothing where nobody wrote."""
    path = folder / FILE
    if not path.exists():
        return []
    lines = read_bytes(path, "log of restarts").split(b"\n")[:-1]
    fix = "an empty folder: --checkpoint FOLDER"
    return [
        decode_json(line, RunEvent, "log of restarts", f"{path}, line {at}", fix) for at, line in enumerate(lines, 1)
    ]


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


def restarts(
    found: Sequence[RunEvent], steps: Sequence[float], every: int, mtbf: float, fail_at: Sequence[int] = ()
) -> RestartLog:
    """What moments come to; `steps` are the seconds of those that count."""
    productive = sum(steps)
    between = sum(after.at - before.at for before, after in pairwise(found) if before.what == ENDED)
    seconds = found[-1].at - found[0].at - between  # one that was asked to go on later rested in between
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
    )


def _restarts(found: Sequence[RunEvent]) -> Iterator[float]:
    """Seconds between the end of a life and the first step of the next. A rank that others killed left no line: then it
    is counted from the last that was written."""
    for before, after in pairwise(found):
        if after.what == BEGAN and before.what != ENDED:
            yield after.at - before.at
