"""Copies of this process that answer questions one after the other, and keep what they made for the next one.

with ForkedWorkers(answer, 2) as workers:
    found = workers.any_of(questions)

What is answered may not depend on what was asked before: then it is the same with any number of copies, and without
them. Where a process cannot be copied (not on Linux) this one answers alone.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple, NoReturn

from foretell import trust
from foretell.processes import RankFailed, end_with_parent


def cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Said(NamedTuple):
    """An answer, or why there is none."""

    answer: Any
    problem: str = ""
    trace: str = ""


class ForkedWorkers:
    """`count` copies, 0: one for each core; one alone is this process itself."""

    def __init__(self, answer: Callable[[Any], Any], count: int = 0) -> None:
        self._answer = answer
        self.count = (count or cores()) if sys.platform == "linux" else 1
        self._started: list[tuple[Any, Connection]] = []

    def __enter__(self) -> ForkedWorkers:
        context: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
        for _ in range(self.count if self.count > 1 else 0):
            ours, theirs = context.Pipe()
            process = context.Process(target=_answer_all, args=(self._answer, theirs), daemon=True)
            with warnings.catch_warnings(), trust.importing_nothing_from_here():
                warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 on forks beside threads
                process.start()
            theirs.close()
            self._started.append((process, ours))
        return self

    def __exit__(self, *_: object) -> None:
        for process, ours in self._started:
            process.kill()
            process.join()
            process.close()
            ours.close()
        self._started.clear()

    def any_of(self, questions: Sequence[Any], told: Callable[[int], None] = lambda at: None) -> list[Any]:
        """The answers, in the order of the questions; whoever is free takes the next. `told` hears which is done."""
        found: list[Any] = [None] * len(questions)
        left = iter(range(len(questions)))
        if not self._started:
            for at in left:
                found[at] = self._answer(questions[at])
                told(at)
            return found
        asked: dict[Connection, int] = {}
        for _, ours in self._started:
            self._ask(ours, questions, left, asked)
        while asked:
            for ready in wait(list(asked)):
                assert isinstance(ready, Connection)
                at = asked.pop(ready)
                found[at] = self._heard(ready)
                self._ask(ready, questions, left, asked)
                told(at)
        return found

    def each_of(self, questions: Sequence[Any]) -> list[Any]:
        """One question for each copy: always the same one gets those of a place."""
        if not self._started:
            return [self._answer(one) for one in questions]
        for (_, ours), one in zip(self._started, questions, strict=True):
            ours.send(one)
        return [self._heard(ours) for _, ours in self._started]

    def _ask(self, ours: Connection, questions: Sequence[Any], left: Any, asked: dict[Connection, int]) -> None:
        at = next(left, None)
        if at is not None:
            ours.send(questions[at])
            asked[ours] = at

    def _heard(self, ours: Connection) -> Any:
        place = next(at for at, (_, other) in enumerate(self._started) if other is ours)
        try:
            said: _Said = ours.recv()
        except EOFError:
            raise RankFailed(place, "ended without an answer") from None
        if said.problem:
            raise RankFailed(place, f"failed: {said.problem}", said.trace)
        return said.answer


def _answer_all(answer: Callable[[Any], Any], theirs: Connection) -> NoReturn:
    """Whatever happens, the parent's code does not go on here."""
    try:
        end_with_parent()
        with contextlib.suppress(EOFError):
            while True:
                theirs.send(_said(answer, theirs.recv()))
    finally:
        os._exit(0)


def _said(answer: Callable[[Any], Any], question: Any) -> _Said:
    try:
        return _Said(answer(question))
    except BaseException as problem:
        return _Said(None, f"{type(problem).__name__}: {problem}", traceback.format_exc(limit=-3))
