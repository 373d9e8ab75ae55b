"""A comparison on several hosts. torchrun or Slurm has started a process for each rank that there may be: a seat.

Seat 0 asks the questions and keeps the rows. The others do what it says, each one rank of a row, until all is said. A
rank is a process of its own here too: one that dies takes no seat with it.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Final

import msgspec

from foretell.bench import environments
from foretell.bench.environments import Home
from foretell.bench.measuring import BenchPlace, Starter
from foretell.bench.question import BenchQuestion
from foretell.errors import BadInput, ForetellError
from foretell.processes import launcher_variables
from foretell.runtime.assignment import Failure, RunOutcome, Seat
from foretell.runtime.place import RankPlace, bound, meeting_point

CONSEQUENCE: Final = "Consequence"
"""The kind of a failure of a rank that only misses another one."""

SLACK: Final = 60.0
"""Seconds that the slowest seat may need beyond a row's own, to end what did not."""


class RankCall(msgspec.Struct, frozen=True):
    """What seats are told: a question, of so many ranks, and how long it may take. No question: it is over."""

    question: BenchQuestion | None
    ranks: int = 0
    seconds: float = 0.0
    meeting: str = ""


class SeatStore:
    """The store at which all seats sit."""

    def __init__(self, place: RankPlace) -> None:
        self.place = place
        os.environ.update(meeting_point())
        self._address = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
        self._life = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self._store: Any = importlib.import_module("foretell.runtime.worker").store_of_life(place)
        for name in launcher_variables():  # frameworks would take a rank for one that has another number here
            del os.environ[name]

    def meeting(self, row: int) -> str:
        """Where the ranks of a row meet."""
        address: str = importlib.import_module("foretell.runtime.rank_rendezvous").address(
            *self._address, f"life-{self._life}-row-{row}"
        )
        return address

    def say(self, row: int, call: RankCall) -> None:
        self._store.set(f"call {row}", msgspec.json.encode(call))

    def hear(self, row: int) -> RankCall:
        """The next call, however long it takes: seat 0 may be busy with something that needs no ranks."""
        while not self._store.check([f"call {row}"]):
            self._wait(f"call {row}", SLACK)
        return msgspec.json.decode(self._store.get(f"call {row}"), type=RankCall)

    def answer(self, row: int, outcome: RunOutcome) -> None:
        self._store.set(f"answer {row} of {self.place.rank}", msgspec.json.encode(outcome))

    def answered(self, row: int, seat: int, until: float) -> RunOutcome:
        """What a seat says of a row by a moment of the monotonic clock."""
        key = f"answer {row} of {seat}"
        if not self._wait(key, until - time.monotonic()):
            return RunOutcome(failure=Failure("BadInput", f"seat {seat} gave no answer in time"))
        return msgspec.json.decode(self._store.get(key), type=RunOutcome)

    def _wait(self, key: str, seconds: float) -> bool:
        """Whether somebody has said it by then. A store that is gone is an error."""
        from datetime import timedelta

        if seconds < 0.001:  # for the store no time at all means no limit
            return bool(self._store.check([key]))
        try:
            self._store.wait([key], timedelta(seconds=seconds))
        except RuntimeError:  # torch's word for a time that is over
            return bool(self._store.check([key]))
        return True


class Conductor(Starter):
    """Seat 0: it has the ranks of a row started at all seats that it needs, its own among them."""

    def __init__(self, table: SeatStore, cluster: str = "") -> None:
        self._table, self._row = table, 0
        place = table.place
        self.where = BenchPlace(place.world, place.here, cluster)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self._table.say(self._row, RankCall(None))
        finally:  # the store may be gone; what this seat has started ends all the same
            super().__exit__(kind, error, at)

    def outcome(self, question: BenchQuestion, home: Home, seconds: float, seat: Seat | None = None) -> RunOutcome:
        ranks, row = question.assignment().setting.plan.ranks, self._row
        if ranks > self.where.ranks:
            what = f"{ranks} ranks, and {self.where.ranks} processes were started"
            raise BadInput(what, where="--ranks", fix=f"--ranks {self.where.ranks}")
        call, until = RankCall(question, ranks, seconds, self._table.meeting(row)), time.monotonic() + seconds + SLACK
        self._table.say(row, call)
        self._row += 1
        own = _sat(super().outcome, question, home, seconds, _seat(self._table.place, call))
        others = (self._table.answered(row, one, until) for one in range(1, ranks))  # all by the same moment
        return together([own, *others])


def follow(table: SeatStore) -> None:
    """Be one of the other seats until all is said."""
    row = 0
    with Starter() as starter:
        while (call := table.hear(row)).question is not None:
            if table.place.rank < call.ranks:
                home = environments.found(call.question.engine_asked)
                table.answer(row, _taken(starter, call, home, table.place))
            row += 1


def _taken(starter: Starter, call: RankCall, home: Home | None, place: RankPlace) -> RunOutcome:
    assert call.question is not None
    if home is None:
        package = call.question.engine_asked.package
        return RunOutcome(failure=Failure("BadInput", f"{package} is not installed on the host of rank {place.rank}"))
    return _sat(starter.outcome, call.question, home, call.seconds, _seat(place, call))


def _sat(outcome: Any, *asked: Any) -> RunOutcome:
    """What came of one rank, an error of its process too."""
    try:
        found: RunOutcome = outcome(*asked)
    except ForetellError as problem:
        return RunOutcome(failure=Failure(type(problem).__name__, problem.what, problem.where, problem.fix))
    return found


def _seat(place: RankPlace, call: RankCall) -> Seat:
    """The rank of this seat in a row, which may have fewer than there are seats on its host."""
    here = min(place.here, call.ranks - (place.rank - place.local))
    own_cores = place.by_srun and bound(place, len(os.sched_getaffinity(0)))
    return Seat(place.rank, place.local, here, call.meeting, own_cores)


def together(outcomes: Iterable[RunOutcome]) -> RunOutcome:
    """What all ranks have seen; or the first failure that is not the consequence of another one."""
    found = list(outcomes)
    failures = [one.failure for one in found if one.failure is not None]
    if failures:
        return RunOutcome(failure=next((one for one in failures if one.kind != CONSEQUENCE), failures[0]))
    return RunOutcome(tuple(report for one in found for report in one.reports))


def conducting(place: RankPlace | None, cluster: str = "") -> Starter:
    """Whoever starts the ranks of a comparison: this machine, or seat 0 of those that were started."""
    return Conductor(SeatStore(place), cluster) if place is not None else _here(cluster)


def _here(cluster: str) -> Starter:
    starter = Starter()
    starter.where = BenchPlace(cluster=cluster)
    return starter
