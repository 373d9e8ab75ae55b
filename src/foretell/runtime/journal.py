"""A rank's notes as it goes: where it is now, and every step that it has ended.

A process is one rank, so there is one journal here. Whoever starts ranks reads them when one of them is gone: what was
measured until then is not lost, and one can say where it happened.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from foretell.runtime.assignment import Report

NOTE = 64
"""Bytes of a note; always as many, so that it can be written over."""


START = "start"
PHASES = (START, "input", "forward", "backward", "exchange", "optimizer")
"""In the order of a step."""


class StepEnded(msgspec.Struct, frozen=True):
    """A step that is over."""

    seconds: float
    phases: dict[str, float]
    loss: float | None


class Journal:
    """Knows the phase that runs, and keeps no notes: nobody asked."""

    phase = START

    def entered(self, phase: str) -> None:
        self.phase = phase

    def stepped(self, ended: StepEnded) -> None: ...

    def resumed(self, before: Sequence[StepEnded]) -> None: ...


class FileJournal(Journal):
    """Notes in two files: one line that is written over, and a line for each step."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._at = os.open(folder / f"at-{rank}", os.O_WRONLY | os.O_CREAT)
        self._steps = os.open(folder / f"steps-{rank}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._step = 0
        self.entered(START)

    def entered(self, phase: str) -> None:
        super().entered(phase)
        note = f"{self._step} {phase} {time.monotonic():.3f}"
        os.pwrite(self._at, note.ljust(NOTE).encode()[:NOTE], 0)

    def stepped(self, ended: StepEnded) -> None:
        os.write(self._steps, msgspec.json.encode(ended) + b"\n")
        self._step += 1

    def resumed(self, before: Sequence[StepEnded]) -> None:
        """These steps were done before this rank came up: they count, whatever happens to it."""
        for ended in before:
            self.stepped(ended)


_HERE = [Journal()]


def here() -> Journal:
    """The journal of this process."""
    return _HERE[0]


def keep(folder: Path, rank: int) -> None:
    """Take notes from now on."""
    _HERE[0] = FileJournal(folder, rank)


# what others read


class At(NamedTuple):
    """Where a rank was last seen."""

    step: int
    phase: str
    since: float  # by the monotonic clock

    @property
    def order(self) -> tuple[int, int, float]:
        """Less for a rank that is further behind; in the same phase, that has been there for longer."""
        return self.step, PHASES.index(self.phase) if self.phase in PHASES else len(PHASES), self.since

    @property
    def begins(self) -> bool:
        """Whether the first step is still to come."""
        return self.phase == START

    def __str__(self) -> str:
        return "before the first step" if self.begins else f"step {self.step}, {self.phase}"


def at(folder: Path, rank: int) -> At | None:
    """The last note of a rank; none of one that has not begun."""
    try:
        step, phase, since = (folder / f"at-{rank}").read_bytes().decode().split()
        return At(int(step), phase, float(since))
    except (OSError, ValueError):
        return None


def until_then(folder: Path, ranks: int, dropped: int) -> tuple[Report, ...]:
    """What every rank measured before a run came to its end; nothing where one has measured no step."""
    told = [_steps(folder / f"steps-{rank}.jsonl") for rank in range(ranks)]
    count = min(len(steps) for steps in told)
    if count <= dropped:
        return ()
    return tuple(_report(rank, steps[:count], dropped) for rank, steps in enumerate(told))


def _steps(file: Path) -> list[StepEnded]:
    """The whole lines of a file: the last one may be cut."""
    try:
        lines = file.read_bytes().split(b"\n")[:-1]
    except OSError:
        return []
    return [msgspec.json.decode(line, type=StepEnded) for line in lines]


def _report(rank: int, steps: list[StepEnded], dropped: int) -> Report:
    measured = steps[dropped:]
    names = dict.fromkeys(name for step in measured for name in step.phases)
    return Report(
        rank=rank,
        losses=[step.loss for step in steps if step.loss is not None],
        phases={name: [step.phases.get(name, 0.0) for step in measured] for name in names},
        steps=[step.seconds for step in measured],
    )
