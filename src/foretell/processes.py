"""Processes that foretell starts: fed with lines, watched, and ended with all that they started themselves.

A child has a session of its own, so that Ctrl-C is for the one who asks, and a clean environment: it finds the package
that started it, and nothing tells it that it is a rank of torchrun, Slurm or MPI. It imports nothing from the folder
that it is started in: a `numpy.py` that lies there is not numpy.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import multiprocessing
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, NoReturn

from foretell import trust

LAUNCHERS: Final = ("TORCHELASTIC_", "SLURM_", "PMI", "OMPI_", "MASTER_", "ROLE_", "GROUP_")
RANK: Final = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
"""Variables by which a process is taken for a rank that a launcher started: their beginnings, and whole names."""

PARENT_DEATH_SIGNAL: Final = 1
"""PR_SET_PDEATHSIG of prctl(2)."""

LAST_SECONDS: Final = 5.0
"""That a process which closed its output gets to end by itself, so that its exit code is its own."""


def launcher_variables() -> list[str]:
    """Names of this process's variables that launchers set."""
    return [name for name in os.environ if name.startswith(LAUNCHERS) or name in RANK]


def environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """The clean environment of a child, with some variables of its own."""
    left_out = launcher_variables()
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    path = os.pathsep.join([str(Path(__file__).parents[1]), *trust.import_folders()])
    return {**kept, "PYTHONPATH": path, trust.SAFE_PATH: "1", **trust.handed_down(), **(variables or {})}


def python(*words: str, by: str = sys.executable) -> list[str]:
    """A command for Python that imports nothing from the folder it is started in."""
    return [by, "-P", *words]


class ProcessEnded(Exception):
    """A process that was to answer has ended."""

    def __init__(self, code: int, said: str) -> None:
        super().__init__(f"it ended with {code}")
        self.code, self.said = code, said


class ChildProcess:
    """A program that answers lines with lines.

    with ChildProcess(python("-m", "some.module")) as child:
        answer = child.ask(b"question\\n", seconds=10.0)

    What it writes to standard error goes where ours goes, or is kept for `ProcessEnded.said`.
    """

    def __init__(
        self, command: Sequence[str], variables: Mapping[str, str] | None = None, keep_errors: bool = False
    ) -> None:
        self._errors = tempfile.TemporaryFile() if keep_errors else None  # noqa: SIM115, `end` closes it
        self._heard = b""  # after the last line that was asked for
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment(variables),
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> ChildProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def ask(self, words: bytes, seconds: float | None = None) -> bytes:
        """The line that answers some words."""
        self.tell(words)
        return self.hear(seconds)

    def tell(self, words: bytes) -> None:
        assert self._process.stdin
        try:
            self._process.stdin.write(words)
            self._process.stdin.flush()
        except (OSError, ValueError):
            raise self._ended() from None

    def hear(self, seconds: float | None = None) -> bytes:
        """The next line, without its end; `TimeoutError` where it does not come in time."""
        assert self._process.stdout
        until = None if seconds is None else time.monotonic() + seconds
        parts = [self._heard]
        with selectors.DefaultSelector() as ready:
            ready.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in parts[-1]:
                if not ready.select(None if until is None else max(0.0, until - time.monotonic())):
                    self._heard = b"".join(parts)
                    raise TimeoutError
                parts.append(os.read(self._process.stdout.fileno(), 1 << 16))
                if not parts[-1]:
                    raise self._ended()
        line, _, self._heard = b"".join(parts).partition(b"\n")
        return line

    def _ended(self) -> ProcessEnded:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(LAST_SECONDS)
        self.kill()
        code = self._process.wait()
        if self._errors is None:
            return ProcessEnded(code, "")
        self._errors.seek(0)
        return ProcessEnded(code, self._errors.read().decode(errors="replace"))

    def kill(self) -> None:
        """End it and all that it started, whatever they do."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def end(self, seconds: float = 0.0) -> None:
        """Close its input, let it end by itself for some time, and end what is left."""
        assert self._process.stdin and self._process.stdout
        with contextlib.suppress(OSError):  # what was not written has nobody to read it
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        self.kill()
        self._process.wait()
        self._process.stdout.close()
        if self._errors is not None:
            self._errors.close()


# a function of this program in a process of its own


class RankFailed(Exception):
    """A rank that gave no answer: which one, how it failed, and the end of its traceback."""

    def __init__(self, rank: int, how: str, trace: str = "") -> None:
        super().__init__(f"rank {rank} {how}")
        self.trace = trace


class _Told(NamedTuple):
    """What a forked process says at its end."""

    answer: Any
    problem: str = ""
    trace: str = ""


class ForkedProcess:
    """A function that runs in a copy of this process and tells its answer.

    Forked where that is safe (no torch is loaded again: 0.03 s instead of seconds). It leaves without Python's goodbye:
    gloo's threads abort about one exit in twelve.
    """

    def __init__(self, work: Callable[[], Any], fork: bool = True) -> None:
        forked = fork and sys.platform == "linux"
        context: Any = multiprocessing.get_context("fork" if forked else "spawn")
        self.answers, hand = context.Pipe(duplex=False)
        self._process = context.Process(target=_forked, args=(work, hand), daemon=True)
        with warnings.catch_warnings(), trust.importing_nothing_from_here():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 on forks beside threads
            self._process.start()
        hand.close()  # ours, so that its end is heard

    def answer(self, rank: int) -> Any:
        """What it told."""
        try:
            told: _Told = self.answers.recv()
        except EOFError:
            raise RankFailed(rank, "ended without an answer") from None
        if told.problem:
            raise RankFailed(rank, f"failed: {told.problem}", told.trace)
        return told.answer

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self._process.close()
        self.answers.close()


def _forked(work: Callable[[], Any], hand: Connection) -> NoReturn:
    """Whatever happens, the parent's code does not go on here."""
    try:
        end_with_parent()
        try:
            hand.send(_Told(work()))
        except BaseException as problem:
            hand.send(_Told(None, f"{type(problem).__name__}: {problem}", traceback.format_exc(limit=-3)))
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(0)


def each(work: Callable[[int], Any], count: int, seconds: float, fork: bool = True) -> list[Any]:
    """Do `work(rank)` in a process of its own for each rank; what each returned. `RankFailed`: the first that did."""
    started: list[ForkedProcess] = []
    answers: list[Any] = [None] * count
    until = time.monotonic() + seconds
    try:
        for rank in range(count):
            started.append(ForkedProcess(functools.partial(work, rank), fork))
        waiting = {process.answers: rank for rank, process in enumerate(started)}
        while waiting:
            ready = wait(list(waiting), max(0.0, until - time.monotonic()))
            if not ready:
                raise RankFailed(min(waiting.values()), "did not end in time")
            for one in ready:
                rank = waiting.pop(one)
                answers[rank] = started[rank].answer(rank)
        return answers
    finally:
        for process in started:
            process.end()


@contextlib.contextmanager
def same_signals() -> Generator[None]:
    """Signals mean afterwards what they meant before, whatever a package that is started here makes of them."""
    mine = threading.current_thread() is threading.main_thread()
    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)} if mine else {}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


# inside a child


def end_with_parent() -> None:
    """Ask Linux to end this process when the thread that started it is gone: none outlives the command."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)


def questions_and_answers() -> tuple[BinaryIO, BinaryIO]:
    """The standard streams for questions and answers alone: from now on whatever reads them finds nothing there, and
    whatever prints does so to standard error."""
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return questions, answers


def answer_lines(answer: Callable[[bytes], bytes]) -> None:
    """Answer the lines of standard input until nobody asks any more."""
    questions, answers = questions_and_answers()
    for line in questions:
        answers.write(answer(line) + b"\n")
        answers.flush()
