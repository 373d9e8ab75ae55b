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
from foretell.errors import ForetellError
from foretell.processes import end_with_parent


def cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class WorkerFailed(Exception):
    """A copy that gave no answer: how it failed, and the end of its traceback."""

    def __init__(self, how: str, trace: str = "") -> None:
        super().__init__(f"a copy of this process {how}")
        self.trace = trace


class _Said(NamedTuple):
    """An answer, or why there is none: what was refused is raised as it is."""

    answer: Any
    problem: str = ""
    trace: str = ""
    refused: ForetellError | None = None


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
            others = [ours, *(end for _, end in self._started)]
            process = context.Process(target=_answer_all, args=(self._answer, theirs, others), daemon=True)
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
            _send(ours, one)
        return [self._heard(ours) for _, ours in self._started]

    def _ask(self, ours: Connection, questions: Sequence[Any], left: Any, asked: dict[Connection, int]) -> None:
        at = next(left, None)
        if at is not None:
            _send(ours, questions[at])
            asked[ours] = at

    def _heard(self, ours: Connection) -> Any:
        try:
            said: _Said = ours.recv()
        except (EOFError, OSError):
            raise WorkerFailed("ended without an answer") from None
        if said.refused:
            raise said.refused
        if said.problem:
            raise WorkerFailed(f"failed: {said.problem}", said.trace)
        return said.answer


def _send(ours: Connection, question: Any) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # whoever waits for the answer hears of it
        ours.send(question)


def _answer_all(answer: Callable[[Any], Any], theirs: Connection, others: Sequence[Connection]) -> NoReturn:
    """Whatever happens, the parent's code does not go on here; its ends are closed, so that its end is heard."""
    try:
        end_with_parent()
        for end in others:
            end.close()
        with contextlib.suppress(EOFError, OSError):
            while True:
                _tell(theirs, _said(answer, theirs.recv()))
    finally:
        os._exit(0)


def _said(answer: Callable[[Any], Any], question: Any) -> _Said:
    try:
        return _Said(answer(question))
    except ForetellError as problem:
        return _Said(None, refused=problem)
    except BaseException as problem:
        return _failed(problem)


def _failed(problem: BaseException) -> _Said:
    return _Said(None, f"{type(problem).__name__}: {problem}", traceback.format_exc(limit=-3))


def _tell(theirs: Connection, said: _Said) -> None:
    """An answer that cannot be sent is a failure like another: nothing of it is on its way yet."""
    try:
        theirs.send(said)
    except OSError:
        raise
    except Exception as problem:
        theirs.send(_failed(problem))
