"""Spoiled inputs in great number: each ends in an answer or in a message, never in a traceback.

A reader's input number n of a seed is the same on every machine. An input that takes too long or too much memory is a
fault too: its reader lacks a bound. Time is that of the processor, so that a busy machine finds no other faults.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import io
import json
import os
import pkgutil
import random
import resource
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from foretell import compiling
from foretell.errors import ForetellError
from fuzz import readers
from fuzz.reader import Reader, UnreadableAnswer

SECONDS: Final = 120.0
"""Of the processor, for one input."""

MEMORY: Final = 3 << 30
"""Bytes that one input may add."""

PACKAGE: Final = f"{os.sep}foretell{os.sep}"


class TookTooLong(BaseException):
    """More seconds than any input needs. No reader may catch it."""


@dataclass(frozen=True)
class Fault:
    """An input that ended otherwise, as small as it could be made."""

    reader: str
    seed: int
    number: int
    place: str  # exception, file, line and function of foretell
    shrunk: str  # what is left of the difference from the sample
    trace: str
    content: bytes
    command: str


@dataclass
class Hunted:
    """What a number of inputs of one reader came to."""

    reader: str
    inputs: int = 0
    answers: int = 0
    messages: int = 0
    faults: list[Fault] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        self.faults = self.faults or []


def names() -> list[str]:
    return sorted(one.name for one in pkgutil.iter_modules(readers.__path__) if not one.name.startswith("_"))


def kinds(name: str) -> tuple[Reader, ...]:
    """What a file of `readers/` declares: one kind of input, or several."""
    found = importlib.import_module(f"fuzz.readers.{name}").READER
    return found if isinstance(found, tuple) else (found,)


def hunt(name: str, seed: int, numbers: Iterable[int]) -> Hunted:
    """Try inputs of a reader; of faults at one place the first is kept, and shrunk."""
    found, seen = Hunted(name), set[str]()
    every = [(about, about.samples()) for about in kinds(name)]
    with _apart() as folder, _bounded_memory():
        for about, _ in every:
            if about.beside:
                about.beside(folder)
        for number in numbers:
            case = _Case(every, folder, f"{name}:{seed}:{number}")
            ended, place, trace = case.end(case.steps)
            found.inputs += 1
            found.answers += ended == 0
            found.messages += ended == 2
            if place and place not in seen:
                seen.add(place)
                steps = case.shrunk(place)
                content = case.content(steps)
                shrunk = _difference(case.sample, content)
                found.faults.append(Fault(name, seed, number, place, shrunk, trace, content, " ".join(sys.argv)))
    return found


def unanswered(name: str) -> list[str]:
    """Samples that nobody answers as they are, and entries that answer no sample: spoiling them would show little."""
    found: list[str] = []
    with _apart() as folder:
        for about in kinds(name):
            if about.beside:
                about.beside(folder)
            samples = about.samples()
            cases = {(one, entry): _Case([(about, [one])], folder, "") for one in samples for entry in about.entries}
            for (_, entry), case in cases.items():
                case.entry = entry
            good = {key for key, case in cases.items() if case.end([])[0] == 0}
            found += [f"{one[:300]!r}" for one in samples if one not in {key[0] for key in good}]
            found += [f"entry {at}" for at, one in enumerate(about.entries) if one not in {key[1] for key in good}]
    return found


class _Case:
    """One input: a sample, the steps that spoil it, and its reader."""

    def __init__(self, every: list[tuple[Reader, list[bytes]]], folder: Path, seed: str) -> None:
        rng = random.Random(seed)
        about, samples = rng.choice(every)
        self.form, self.ending, self.folder = about.form, about.ending, folder
        self.sample = rng.choice(samples)
        self.entry = rng.choice(about.entries)
        self.steps = [rng.random() for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5)))]
        self.name = rng.randrange(10**12)  # caches by path see another file each time

    def content(self, steps: list[float]) -> bytes:
        content = self.sample
        for step in steps:
            with contextlib.suppress(RecursionError):  # of a tree too deep to write down: it stays as it was
                content = self.form(content, random.Random(step))
        return content

    def end(self, steps: list[float]) -> tuple[int, str, str]:
        """0 for an answer, 2 for a message, 70 for a fault with its place and its traceback."""
        content = self.content(steps)
        file = self.folder / f"input-{self.name}{self.ending}"
        file.write_bytes(content)
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace") for _ in range(2))
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a package that happens to be imported here
                warnings.filterwarnings("error", module=r"foretell\b|<")  # a line of Python's among those of an answer
                with _bounded_time():
                    self.entry(file, content)
            return _checked(out, err)
        except ForetellError:
            return 2, "", ""
        except (Exception, TookTooLong) as problem:
            return 70, _place(problem), "".join(traceback.format_exception(problem))
        finally:
            file.unlink(missing_ok=True)

    def shrunk(self, place: str) -> list[float]:
        """The steps without those that the fault does not need."""
        steps = self.steps
        for step in self.steps:
            fewer = [one for one in steps if one != step]
            if self.end(fewer)[1] == place:
                steps = fewer
        self.end(steps)
        return steps


def _checked(out: io.TextIOWrapper, err: io.TextIOWrapper) -> tuple[int, str, str]:
    """A program that asked for JSON gets JSON."""
    out.flush(), err.flush()
    said = out.buffer.getvalue().decode()  # type: ignore[attr-defined]
    told = err.buffer.getvalue().decode()  # type: ignore[attr-defined]
    if "--json" in sys.argv and said:
        json.loads(said, parse_constant=_not_json)
    if "Traceback (most recent" in told:
        raise UnreadableAnswer(told)
    return (2 if "\nforetell:" in f"\n{told}" else 0), "", ""


def _not_json(word: str) -> Any:
    raise UnreadableAnswer(f"{word} is no JSON")


def _place(problem: BaseException) -> str:
    """The exception and the innermost place in foretell: what makes two faults the same."""
    frames = [one for one in traceback.extract_tb(problem.__traceback__) if PACKAGE in one.filename]
    where = next((one for one in reversed(frames) if "/cli/main.py" not in one.filename), None)
    if isinstance(problem, TookTooLong | RecursionError | MemoryError):  # where it stops is chance
        where = next((one for one in frames if "/cli/" not in one.filename), where)
    at = f"{where.filename.rpartition(PACKAGE)[2]}:{where.lineno} {where.name}" if where else "outside of foretell"
    return f"{type(problem).__name__} at {at}"


def _difference(sample: bytes, content: bytes) -> str:
    before, after = (_lines(text) for text in (sample, content))
    lines = list(difflib.unified_diff(before, after, lineterm="", n=1))[2:42]
    return "\n".join(line if len(line) < 200 else f"{line[:160]} ... ({len(line):,} letters)" for line in lines)


def _lines(content: bytes) -> list[str]:
    try:
        return json.dumps(json.loads(content), indent=1).splitlines()
    except (ValueError, RecursionError):
        return content.decode("utf-8", "backslashreplace").splitlines()


@contextlib.contextmanager
def _bounded_time() -> Iterator[None]:
    def over(*_: Any) -> None:
        raise TookTooLong(f"more than {SECONDS} s of the processor")

    before = signal.signal(signal.SIGPROF, over)
    try:
        with _compiling_not_counted():
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@contextlib.contextmanager
def _compiling_not_counted() -> Iterator[None]:
    """Stop the clock while kernels are compiled: on a machine that never did it that takes longer than any input."""
    if not compiling.available():
        yield
        return
    from numba.core import event

    class Pause(event.Listener):
        left: ClassVar[list[float]] = []

        def on_start(self, event: Any) -> None:
            self.left.append(signal.setitimer(signal.ITIMER_PROF, 0)[0])

        def on_end(self, event: Any) -> None:
            signal.setitimer(signal.ITIMER_PROF, self.left.pop())

    pause = Pause()
    event.register("numba:compile", pause)
    try:
        yield
    finally:
        event.unregister("numba:compile", pause)


@contextlib.contextmanager
def _bounded_memory() -> Iterator[None]:
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextlib.contextmanager
def _apart() -> Iterator[Path]:
    """A folder to stand in, with no records of the person who runs this; arguments come back as they were."""
    here, arguments, kept = Path.cwd(), sys.argv, os.environ.get("FORETELL_RECORDS")
    with tempfile.TemporaryDirectory(prefix="foretell-fuzz-") as folder:
        os.chdir(folder)
        os.environ["FORETELL_RECORDS"] = f"{folder}/records"
        try:
            yield Path(folder)
        finally:
            os.chdir(here)
            sys.argv = arguments
            os.environ.pop("FORETELL_RECORDS")
            if kept is not None:
                os.environ["FORETELL_RECORDS"] = kept
