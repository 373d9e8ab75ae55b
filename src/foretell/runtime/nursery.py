# pyright: basic
"""The process that brings ranks up: it imports torch once, and forks them for each assignment.

A fork that has torch already meets its first collective within hundredths of a second; a fresh process takes
seconds. This process computes nothing itself, so that a fork finds no threads that it would wait for.

    python -m foretell.runtime.nursery FOLDER      an assignment (JSON) on every line of standard input
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import NoReturn

import msgspec
import torch
import torch._dynamo  # what torch would import at the first step of every fork
from torch._C._distributed_c10d import FileStore

from foretell.errors import ForetellError
from foretell.plan.setting import Setting
from foretell.runtime.assignment import Assignment, Failure, Outcome, Report
from foretell.runtime.training import trained
from foretell.runtime.worker import begun, checked, leave

PARENT_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


def end_with_parent() -> None:
    """Ask Linux to end this process when the one that waits for it is gone: no rank outlives the command."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)


def outcome(assignment: Assignment, folder: Path) -> Outcome:
    """Fork the ranks of an assignment and wait for them."""
    try:
        setting = checked(assignment)
    except ForetellError as problem:
        return Outcome(failure=_said(problem))
    with tempfile.TemporaryDirectory(dir=folder) as meeting:
        ranks = {_forked(assignment, setting, rank, Path(meeting), folder): rank for rank in range(setting.plan.ranks)}
        failed = _waited(ranks)
        if failed is not None:
            return Outcome(failure=_why(failed[0], failed[1], Path(meeting)))
        files = (Path(meeting) / f"report-{rank}.json" for rank in range(setting.plan.ranks))
        return Outcome(tuple(msgspec.json.decode(file.read_bytes(), type=Report) for file in files))


def _forked(assignment: Assignment, setting: Setting, rank: int, meeting: Path, folder: Path) -> int:
    """The process of a new rank."""
    child = os.fork()
    if not child:
        _rank(assignment, setting, rank, meeting, folder)
    return child


def _rank(assignment: Assignment, setting: Setting, rank: int, meeting: Path, folder: Path) -> NoReturn:
    try:
        end_with_parent()
        world = setting.plan.ranks
        begun(assignment.device, rank, world, FileStore(str(meeting / "store"), world))
        report, weights = trained(assignment, setting, rank)
        if weights:
            torch.save(weights, folder / f"weights-{rank}.pt")
        (meeting / f"report-{rank}.json").write_bytes(msgspec.json.encode(report))
        leave()
    except ForetellError as problem:
        (meeting / f"failure-{rank}.json").write_bytes(msgspec.json.encode(_said(problem)))
    except BaseException:
        (meeting / f"failure-{rank}.json").write_bytes(msgspec.json.encode(_broken(rank)))
    leave(1)


def _waited(ranks: dict[int, int]) -> tuple[int, int] | None:
    """Wait for all; when one fails, end the others: they would wait for it for ever. The first that failed, and how."""
    left = dict(ranks)
    failed: tuple[int, int] | None = None
    while left:
        child, status = os.wait()
        rank = left.pop(child, None)
        code = os.waitstatus_to_exitcode(status)
        if rank is not None and code and failed is None:
            failed = rank, code
            time.sleep(0.2)  # a rank that found out itself has written why
            for other in left:
                os.kill(other, signal.SIGKILL)
    return failed


def _said(problem: ForetellError) -> Failure:
    return Failure(type(problem).__name__, problem.what, problem.where, problem.fix)


def _broken(rank: int) -> Failure:
    lines = traceback.format_exc(limit=-4)
    return Failure("BadInput", f"rank {rank} ended with an error:\n{lines}")


def _why(rank: int, code: int, meeting: Path) -> Failure:
    """What the first rank that failed wrote, or how it ended. (Others fail because it is gone.)"""
    written = [meeting / f"failure-{rank}.json", *sorted(meeting.glob("failure-*.json"))]
    for file in written:
        if file.is_file():
            return msgspec.json.decode(file.read_bytes(), type=Failure)
    return Failure(
        "BadInput", f"rank {rank} was ended by signal {-code}" if code < 0 else f"rank {rank} ended with {code}"
    )


def main() -> None:
    end_with_parent()
    folder = Path(sys.argv[1])
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever ranks print goes with the errors: answers stay apart
    for line in sys.stdin.buffer:
        found = outcome(msgspec.json.decode(line, type=Assignment), folder)
        answers.write(msgspec.json.encode(found) + b"\n")


if __name__ == "__main__":
    main()
