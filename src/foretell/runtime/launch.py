"""Starts the ranks of a run on this machine, within bounds: no rank outlives the command, none waits for ever."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, TracebackType
from typing import NoReturn

import msgspec

from foretell import trust
from foretell.errors import BadInput
from foretell.processes import ChildProcess, ProcessEnded, python
from foretell.runtime import journal
from foretell.runtime.assignment import Assignment, Report, RunFailed, RunOutcome, RunStopped
from foretell.runtime.place import RankPlace, meeting_point
from foretell.runtime.restart_log import last_checkpoint
from foretell.scratch import scratch

LONGEST_SECONDS = 900.0

OURS_SECONDS = 1.0
"""Whoever stops all processes of a job (Slurm, systemd) stops our child and us, in any order: our signal has this long
to come, and the run was interrupted then."""


class Ranks:
    """A process that forks ranks for one assignment after the other.

    with Ranks() as ranks:
        reports = ranks.run(Assignment(model="lenet", plan="dp2", batch=8))

    `by` is a module that trains in another way than ours (`bench/engine.py`), and `interpreter` the Python that
    can import it.
    """

    def __init__(
        self, by: str = "", interpreter: str = sys.executable, environment: Mapping[str, str] | None = None
    ) -> None:
        self._command = python("-m", "foretell.runtime", by=interpreter)
        self._by = [by] if by else []
        self._environment = dict(environment or {})

    def __enter__(self) -> Ranks:
        self._scratch = scratch("run")
        self.folder = self._scratch.__enter__()  # where ranks put weights that are handed back, too
        self._child = ChildProcess([*self._command, str(self.folder), *self._by], self._environment, keep_errors=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self._child.end(0.0 if error is not None else 5.0)
        finally:
            self._child.kill()
            self._scratch.__exit__(None, None, None)

    def run(self, assignment: Assignment, seconds: float = LONGEST_SECONDS) -> tuple[Report, ...]:
        """What each rank has seen; a failure of one is raised as what a person can read."""
        found = self.outcome(assignment, seconds)
        if found.failure is not None:
            raise found.failure.raised(found.reports)
        return found.reports

    def outcome(self, assignment: Assignment, seconds: float = LONGEST_SECONDS) -> RunOutcome:
        """What comes of an assignment, whatever it is."""
        try:
            answer = self._answer(msgspec.json.encode((trust.written(), assignment)) + b"\n", seconds)
        except TimeoutError:
            self._child.kill()
            raise self._late(assignment, seconds) from None
        except KeyboardInterrupt:
            self._child.kill()
            raise RunStopped(self._until_then(assignment)) from None
        except ProcessEnded as problem:
            last = "\n".join(problem.said.strip().splitlines()[-12:])
            raise BadInput(f"the process that starts the ranks ended:\n{last}") from None
        return msgspec.json.decode(answer, type=RunOutcome)

    def _answer(self, question: bytes, seconds: float) -> bytes:
        try:
            return self._child.ask(question, seconds)
        except ProcessEnded as problem:
            if problem.code < 0 and -problem.code in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                time.sleep(OURS_SECONDS)
            raise

    def _late(self, assignment: Assignment, seconds: float) -> RunFailed:
        """A run that took too long, with what was measured until then: the notes of ranks outlive them."""
        what = f"{assignment.plan} did not end within {seconds:g} seconds"
        reports = self._until_then(assignment)
        return RunFailed(what, where=assignment.model, fix="fewer --steps, or more --timeout", reports=reports)

    def _until_then(self, assignment: Assignment) -> tuple[Report, ...]:
        notes = next((file.parent for file in self.folder.glob("*/at-0")), self.folder)
        return journal.until_then(notes, assignment.setting.plan.ranks, assignment.dropped)


# where somebody else starts the ranks


def join(assignment: Assignment, place: RankPlace) -> tuple[Report, ...]:
    """Be one of the ranks that torchrun or Slurm started. Rank 0 gets all reports, the others none."""
    ranks = assignment.setting.plan.ranks
    if ranks != place.world:
        what = f"{assignment.plan} has {ranks} ranks, and {place.world} were started"
        raise BadInput(what, where="--plan", fix=f"{ranks} processes in all")
    os.environ.update(meeting_point())
    _end_at_once(assignment, place.rank)
    return _worker().take_part(assignment, place)


def _end_at_once(assignment: Assignment, rank: int) -> None:
    """Have SIGTERM end this rank wherever it is, and rank 0 say what was saved: in a collective, where a rank waits
    most, Python hears no signal. A thread does, for all threads that are started from now on."""
    wanted = {signal.SIGTERM, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, wanted)

    def wait() -> None:
        number = signal.Signals(signal.sigwait(wanted))
        step = last_checkpoint(Path(assignment.checkpoints)) if assignment.checkpoints else None
        saved = "no checkpoint is kept" if step is None else f"step {step} is kept in {assignment.checkpoints}"
        if rank == 0:
            print(f"foretell: stopped by {number.name}: {saved}", file=sys.stderr, flush=True)
        os._exit(128 + number)

    threading.Thread(target=wait, daemon=True).start()


def leave() -> NoReturn:
    """End a rank that joined."""
    _worker().leave()
    raise AssertionError("a rank that has left goes on")


def _worker() -> ModuleType:
    """Found by its name: nothing on the way to here needs torch."""
    return importlib.import_module("foretell.runtime.worker")


def torchrun(ranks: int, nnodes: str, rendezvous: str | None, arguments: list[str], restarts: int = 0) -> NoReturn:
    """Become torchrun, which starts this node's ranks with the same command and waits for the other nodes."""
    if not nnodes.isdigit() or int(nnodes) < 1 or ranks % int(nnodes):
        raise BadInput(f"{ranks} ranks on {nnodes} nodes", where="--nnodes", fix="a number that divides the ranks")
    if int(nnodes) > 1 and rendezvous is None:
        raise BadInput(f"{nnodes} nodes, but nobody says where they meet", where="--rendezvous", fix="HOST:29500")
    meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", rendezvous] if rendezvous else ["--standalone"]
    command = python("-m", "torch.distributed.run", "--nnodes", nnodes)
    command += ["--max-restarts", str(restarts)] if restarts else []
    command += ["--nproc-per-node", str(ranks // int(nnodes)), *meeting, "-m", "foretell", *arguments]
    os.execv(sys.executable, command)
