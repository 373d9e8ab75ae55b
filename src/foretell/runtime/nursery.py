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
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from foretell.errors import ForetellError
from foretell.plan.setting import Setting
from foretell.runtime import dry
from foretell.runtime.assignment import Assignment, Failure, Outcome, Report
from foretell.runtime.place import Place
from foretell.runtime.training import trained
from foretell.runtime.worker import begun, checked, leave

PARENT_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


CONSEQUENCE = "Consequence"

GRACE = 1.0
"""Seconds after the first failure in which others may tell what they know of it."""


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
    except Exception:
        return Outcome(failure=Failure("BadInput", f"the run could not begin:\n{traceback.format_exc(limit=-4)}"))
    with tempfile.TemporaryDirectory(dir=folder) as meeting:
        count = 1 if assignment.dry else setting.plan.ranks
        ranks = {_forked(assignment, setting, rank, Path(meeting), folder): rank for rank in range(count)}
        failed = _waited(ranks, Path(meeting))
        if failed:
            return Outcome(failure=_why(failed, Path(meeting)))
        files = (Path(meeting) / f"report-{rank}.json" for rank in range(count))
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
        if assignment.dry:
            report, weights = dry.reported(assignment, setting), {}
        else:
            world = setting.plan.ranks
            begun(assignment.device, Place(rank, world, rank), FileStore(str(meeting / "store"), world))
            report, weights = trained(assignment, setting, rank)
        if weights:
            torch.save(weights, folder / f"weights-{rank}.pt")
        _write(meeting / f"report-{rank}.json", report)
        leave()
    except ForetellError as problem:
        (meeting / f"failure-{rank}.json").write_bytes(msgspec.json.encode(_said(problem)))
    except BaseException as problem:
        (meeting / f"failure-{rank}.json").write_bytes(msgspec.json.encode(_broken(rank, problem)))
    leave(1)


def _write(file: Path, report: Report) -> None:
    """All of it or nothing."""
    part = file.with_suffix(".part")
    part.write_bytes(msgspec.json.encode(report))
    part.replace(file)


def _waited(ranks: dict[int, int], meeting: Path) -> dict[int, int]:
    """Wait for all; how those ended that failed. When one fails the others would wait for it for ever: end them.

    A rank that has written its report has done all of its work, however it ends: threads of gloo's may abort it when
    others close what they listen to.
    """
    left, failed = dict(ranks), dict[int, int]()
    until = None
    while left:
        child, status = os.waitpid(-1, os.WNOHANG if until else 0)
        code = os.waitstatus_to_exitcode(status)
        if child in left and code and not (meeting / f"report-{left[child]}.json").is_file():
            failed[left[child]] = code
            until = until or time.monotonic() + GRACE
        left.pop(child, None)
        if until and time.monotonic() > until:
            for other in left:
                os.kill(other, signal.SIGKILL)
                os.waitpid(other, 0)
            return failed
        if not child:
            time.sleep(0.05)
    return failed


def _said(problem: ForetellError) -> Failure:
    return Failure(type(problem).__name__, problem.what, problem.where, problem.fix)


def _broken(rank: int, problem: BaseException) -> Failure:
    """An error of a rank. One that misses another rank is the consequence of an error, not the error."""
    lines = traceback.format_exc(limit=-4)
    kind = CONSEQUENCE if "gloo" in str(problem) or isinstance(problem, dist.DistError) else "BadInput"
    return Failure(kind, f"rank {rank} ended with an error:\n{lines}")


def _why(failed: dict[int, int], meeting: Path) -> Failure:
    """The first cause that is known: an error of a rank's own, a signal, or what the others noticed of it."""
    written = (meeting / f"failure-{rank}.json" for rank in failed)
    said = [msgspec.json.decode(file.read_bytes(), type=Failure) for file in written if file.is_file()]
    causes = [one for one in said if one.kind != CONSEQUENCE]
    causes += [
        Failure("BadInput", f"rank {rank} was ended by signal {-code}") for rank, code in failed.items() if code < 0
    ]
    rank, code = next(iter(failed.items()))
    return next(iter([*causes, *said]), Failure("BadInput", f"rank {rank} ended with {code}"))


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
