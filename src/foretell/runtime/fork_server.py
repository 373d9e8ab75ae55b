# pyright: basic
"""The process that brings ranks up: it imports torch once, and forks them for each assignment.

A fork that has torch already meets its first collective within hundredths of a second; a fresh process takes
seconds. This process computes nothing itself, so that a fork finds no threads that it would wait for.

    python -m foretell.runtime FOLDER [MODULE]

reads lines of JSON: the code that may be run (`foretell.trust`), and an assignment.

MODULE is somebody else's way to train (`bench/engine.py` says what is in it), in the place of our appliers.
"""

from __future__ import annotations

import functools
import gc
import importlib
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import msgspec
import torch
import torch._dynamo  # what torch would import at the first step of every fork
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from foretell import trust
from foretell.errors import ForetellError
from foretell.model.importers.torch_child import answered
from foretell.model.importers.torch_load import trace_in_forks
from foretell.plan.setting import Setting
from foretell.processes import answer_lines, end_with_parent
from foretell.runtime import appliers, dry_run, hosts, journal, rank_rendezvous, rehearsed_rank
from foretell.runtime.assignment import Assignment, Failure, Report, RunOutcome, Seat
from foretell.runtime.compute_emulation import emulated
from foretell.runtime.guard import CONSEQUENCE, LOST_RANK, Guard
from foretell.runtime.place import RankPlace, by_srun
from foretell.runtime.rank_rendezvous import PATIENCE
from foretell.runtime.training import trained
from foretell.runtime.worker import begun, by_own, checked, leave

LOST = ("gloo", "lost rank", "heard nothing from rank", "Connection reset", "Connection closed", "Broken pipe")
"""What a rank says that misses another one: gloo's words, those of our own collectives, and of sockets."""

OUT_OF_MEMORY = ("can't allocate memory", "out of memory", "Cannot allocate memory")
"""What torch and the kernel say."""

LESS = "fewer samples, more ranks, or +recompute:block"


def outcome(assignment: Assignment, folder: Path, by: ModuleType | None = None) -> RunOutcome:
    """Fork the ranks of an assignment and wait for them; if one is lost, again, as often as is wanted."""
    try:
        setting = assignment.setting
        if by is None:
            checked(assignment, len(_own_ranks(assignment, setting)))
    except ForetellError as problem:
        return RunOutcome(failure=msgspec.structs.replace(_said(problem), begun=False))
    except Exception:
        what = f"the run could not begin:\n{traceback.format_exc(limit=-4)}"
        return RunOutcome(failure=Failure("BadInput", what, begun=False))
    for _ in range(assignment.restarts):
        found = _life(assignment, setting, folder, by)
        if found.failure is None or found.failure.kind != LOST_RANK:
            return found  # an error of its own would come again
    return _life(assignment, setting, folder, by)


def _life(assignment: Assignment, setting: Setting, folder: Path, by: ModuleType | None) -> RunOutcome:
    """Fork the ranks and wait for them, once."""
    with tempfile.TemporaryDirectory(dir=folder) as meeting:
        own = _own_ranks(assignment, setting)
        ranks = {_forked(assignment, setting, rank, Path(meeting), folder, by): rank for rank in own}
        guard = Guard(ranks, Path(meeting), assignment.patience)
        if not guard.over():
            until = journal.until_then(Path(meeting), len(own), assignment.dropped) if assignment.seat is None else ()
            return RunOutcome(until, _why(guard, Path(meeting)))
        files = (Path(meeting) / f"report-{rank}.json" for rank in own)
        return RunOutcome(tuple(msgspec.json.decode(file.read_bytes(), type=Report) for file in files))


def _own_ranks(assignment: Assignment, setting: Setting) -> range:
    """Ranks that are started here."""
    if assignment.seat is not None:
        return range(assignment.seat.rank, assignment.seat.rank + 1)
    if assignment.rehearsal is not None:
        return range(assignment.rehearsal.rank, assignment.rehearsal.rank + 1)
    return range(1 if assignment.dry else setting.plan.ranks)


def _forked(
    assignment: Assignment, setting: Setting, rank: int, meeting: Path, folder: Path, by: ModuleType | None
) -> int:
    """The process of a new rank."""
    child = os.fork()
    if not child:
        _rank(assignment, setting, rank, meeting, folder, by)
    return child


def _rank(
    assignment: Assignment, setting: Setting, rank: int, meeting: Path, folder: Path, by: ModuleType | None
) -> NoReturn:
    try:
        end_with_parent()
        journal.keep(meeting, rank)
        if assignment.dry:
            report, weights = dry_run.reported(assignment, setting), {}
        elif assignment.rehearsal is not None:
            report, weights = rehearsed_rank.reported(assignment, assignment.rehearsal, setting), {}
        else:
            world = setting.plan.ranks
            hosts.settle(rank, world)
            begin: Any = getattr(by, "begin", _begun)
            begin(assignment.device, _place(assignment.seat, rank, world), _meeting(assignment.seat, meeting))
            by_own(assignment.collectives)
            with emulated(assignment, rank):
                report, weights = trained(assignment, setting, rank, appliers.apply if by is None else by.apply)
        if weights:
            torch.save(weights, folder / f"weights-{rank}.pt")
        _write(meeting / f"report-{rank}.json", report)
        leave()
    except BaseException as problem:
        try:
            told = _said(problem) if isinstance(problem, ForetellError) else _broken(rank, problem)
            _write(meeting / f"failure-{rank}.json", told)
        finally:  # whatever happens, the code of the process that forked this one does not go on here
            leave(1)


def _place(seat: Seat | None, rank: int, world: int) -> RankPlace:
    if seat is None:
        return RankPlace(rank, world, rank, world)
    return RankPlace(rank, world, seat.local, seat.here, by_srun())


def _meeting(seat: Seat | None, folder: Path) -> str:
    """Where ranks meet, as torch writes it: in a file of this machine, or where the seat says."""
    return rank_rendezvous.in_file(folder / "store") if seat is None else seat.meeting


def _begun(device: str, place: RankPlace, meeting: str) -> None:
    store, _, _ = next(rendezvous(meeting, place.rank, place.world, timeout=PATIENCE))
    begun(device, place, store)


def _write(file: Path, told: Report | Failure) -> None:
    """All of it or nothing."""
    part = file.with_suffix(".part")
    part.write_bytes(msgspec.json.encode(told))
    part.replace(file)


def _said(problem: ForetellError) -> Failure:
    return Failure(type(problem).__name__, problem.what, problem.where, problem.fix, at=time.monotonic())


def _broken(rank: int, problem: BaseException) -> Failure:
    """An error of a rank. One that misses another rank is the consequence of an error, not the error."""
    full = next(filter(_lacks_memory, _chain(problem)), None)
    if full is not None:
        last = str(full).strip().splitlines()[:1]
        return Failure("BadInput", f"rank {rank} ran out of memory: {''.join(last)}", fix=LESS, at=time.monotonic())
    lines = traceback.format_exc(limit=-4)
    kind = CONSEQUENCE if any(map(_misses, _chain(problem))) else "BadInput"
    return Failure(kind, f"rank {rank} ended with an error:\n{lines}", at=time.monotonic())


def _lacks_memory(problem: BaseException) -> bool:
    return isinstance(problem, MemoryError) or any(word in str(problem) for word in OUT_OF_MEMORY)


def _misses(problem: BaseException) -> bool:
    """Whether an error only says that another rank is not there any more."""
    return isinstance(problem, dist.DistError | ConnectionError) or any(word in str(problem) for word in LOST)


def _chain(problem: BaseException | None) -> Iterator[BaseException]:
    """An error and those that it was raised from."""
    while problem is not None:
        yield problem
        problem = problem.__cause__


def _why(guard: Guard, meeting: Path) -> Failure:
    """The first cause that is known."""
    files = {rank: meeting / f"failure-{rank}.json" for rank in guard.ranks}
    return guard.cause({rank: _told(file) for rank, file in files.items() if file.is_file()})


def _told(file: Path) -> Failure:
    return msgspec.json.decode(file.read_bytes(), type=Failure)


def main() -> None:
    rank_rendezvous.learn()
    folder = Path(sys.argv[1])
    by = importlib.import_module(sys.argv[2]) if len(sys.argv) > 2 else None
    trace_in_forks(answered)
    gc.freeze()  # forks look for garbage, and need not look through all of torch
    run: Any = getattr(by, "outcome", functools.partial(outcome, by=by))

    def answer(line: bytes) -> bytes:
        written, assignment = msgspec.json.decode(line, type=tuple[list[str], Assignment])
        trust.trust(*written)
        return msgspec.json.encode(run(assignment, folder))

    answer_lines(answer)
    if by is not None and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)  # what a framework started and left behind is of this group, and ends with it
