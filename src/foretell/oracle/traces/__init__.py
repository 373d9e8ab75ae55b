"""Traces of real steps, as profilers write them: one file a form. `read` tells which form a file has.

Whatever the form, a trace is made into the same: for each rank and step the seconds of each kernel, the messages, what
of them nothing hides, and the time in which neither runs. On a processor the operators of its thread are the kernels,
each with the time that none of those within it takes.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeAlias, cast

import msgspec

from foretell.errors import BadInput
from foretell.files import shown
from foretell.registry import OpenSet

FORMS: Final = OpenSet(__name__, "form of a trace")

MESSAGES: Final = re.compile(
    r"^gloo:|nccl|rccl|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|sendrecv|broadcast_kernel", re.I
)
"""Names of what talks to other ranks."""

AROUND: Final = re.compile(
    r"^c10d::|record_param_comms|^ProfilerStep|Profiler|^PythonDispatchMode|^PythonTLSSnapshot", re.I
)
"""Names of what only starts it, marks time, or hands on to the operator within."""

SQLITE: Final = b"SQLite format 3\x00"
"""What a database begins with, which is never read whole."""

Span: TypeAlias = tuple[float, float]


class TracedWork(NamedTuple):
    """Something that ran: on a lane (a thread, a stream), from when to when, in seconds."""

    name: str
    lane: str
    start: float
    end: float

    @property
    def span(self) -> Span:
        return self.start, self.end


class MessageTrace(msgspec.Struct, frozen=True):
    """One message of a step, as long as this rank was in it."""

    name: str
    seconds: float


class StepTrace(msgspec.Struct, frozen=True, kw_only=True):
    """One step of one rank."""

    seconds: float
    kernels: dict[str, float]  # seconds by name
    counts: dict[str, int]
    messages: tuple[MessageTrace, ...]  # in order
    exposed: float  # seconds of messages beside which nothing runs
    idle: float  # seconds of neither

    @property
    def computing(self) -> float:
        return sum(self.kernels.values())


class RankTrace(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of one rank."""

    rank: int
    steps: tuple[StepTrace, ...]
    file: str = ""
    world: int = 0  # ranks of the run; 0: the file does not say


class RawTrace(NamedTuple):
    """What a form reads: one rank's events, and its steps where they are marked."""

    rank: int | None  # None: the file does not say
    kernels: Sequence[TracedWork]
    messages: Sequence[TracedWork]
    steps: Sequence[Span]
    world: int = 0  # ranks of the run; 0: the file does not say
    on_device: bool = True  # else its kernels are the operators of a processor's thread


class TraceFile(Protocol):
    """A file in this folder."""

    SUMMARY: str

    def read(self, path: Path) -> Sequence[RawTrace] | None:
        """The ranks of a trace, None where the file has another form."""
        ...


def read(paths: Sequence[Path]) -> tuple[RankTrace, ...]:
    """The ranks of some traces, in order. A file that does not say which rank it is of is of the next one."""
    found: list[RankTrace] = []
    for path in paths:
        for raw in _raw(path):
            rank = raw.rank if raw.rank is not None else len(found)
            steps = settled(raw, path)
            found.append(RankTrace(rank=rank, steps=steps, file=shown(path), world=raw.world))
    ranks = [one.rank for one in found]
    twice = sorted({rank for rank in ranks if ranks.count(rank) > 1})
    if twice:
        what = f"rank {twice[0]} is there {ranks.count(twice[0])} times"
        raise BadInput(what, where=", ".join(one.file for one in found if one.rank == twice[0]), fix="a trace a rank")
    return tuple(sorted(found, key=lambda one: one.rank))


def _raw(path: Path) -> Sequence[RawTrace]:
    for name in FORMS:
        found = cast("TraceFile", FORMS[name]).read(path)
        if found is not None:
            return found
    raise BadInput("no trace of a form that is known", where=shown(path), fix=_summaries())


def _summaries() -> str:
    return "; ".join(cast("TraceFile", FORMS[name]).SUMMARY for name in FORMS)


def settled(raw: RawTrace, path: Path) -> tuple[StepTrace, ...]:
    """Its steps without the first, which warms up."""
    found = tuple(_steps(raw))
    if not any(one.seconds > 0 for one in found):
        raise BadInput("no step of the trace takes any time", where=shown(path), fix=_summaries())
    return found


def _steps(raw: RawTrace) -> Iterator[StepTrace]:
    spans = sorted(raw.steps) or [_whole([*raw.kernels, *raw.messages])]
    later = spans[1:] or spans
    own = _by_step(_alone(raw.kernels), later)
    sent = _by_step([(one, one.end - one.start) for one in raw.messages], later)
    computing = merged(one.span for one in raw.kernels)
    either = merged(one.span for one in (*raw.kernels, *raw.messages))
    for at, span in enumerate(later):
        kernels: dict[str, float] = defaultdict(float)
        counts: dict[str, int] = defaultdict(int)
        for one, seconds in own[at]:
            kernels[one.name] += seconds
            counts[one.name] += 1
        busy, length = covered(either, span), span[1] - span[0]
        yield StepTrace(
            seconds=length,
            kernels=dict(kernels),
            counts=dict(counts),
            messages=tuple(MessageTrace(one.name, seconds) for one, seconds in sent[at]),
            exposed=busy - covered(computing, span),
            idle=length - busy,
        )


def _by_step(timed: Iterable[tuple[TracedWork, float]], spans: Sequence[Span]) -> list[list[tuple[TracedWork, float]]]:
    """What begins in each step, in order."""
    found: list[list[tuple[TracedWork, float]]] = [[] for _ in spans]
    at = 0
    for one, seconds in sorted(timed, key=lambda pair: pair[0].start):
        while at < len(spans) and one.start >= spans[at][1]:
            at += 1
        if at == len(spans):
            break
        if one.start >= spans[at][0]:
            found[at].append((one, seconds))
    return found


def _alone(kernels: Sequence[TracedWork]) -> Iterator[tuple[TracedWork, float]]:
    """Each with the seconds that none of those within it on its lane takes."""
    lanes: dict[str, list[TracedWork]] = defaultdict(list)
    for one in kernels:
        lanes[one.lane].append(one)
    for own in lanes.values():
        open_: list[tuple[TracedWork, float]] = []
        for one in sorted(own, key=lambda each: (each.start, -each.end)):
            while open_ and open_[-1][0].end <= one.start:
                yield open_.pop()
            if open_ and one.end <= open_[-1][0].end:
                outer, seconds = open_.pop()
                open_.append((outer, seconds - (one.end - one.start)))
            open_.append((one, one.end - one.start))
        yield from open_


def _whole(events: Iterable[TracedWork]) -> Span:
    spans = [one.span for one in events] or [(0.0, 0.0)]
    return min(start for start, _ in spans), max(end for _, end in spans)


def merged(spans: Iterable[Span]) -> list[Span]:
    """The time that any of them covers, as spans that do not overlap."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def covered(spans: Iterable[Span], within: Span) -> float:
    """Seconds of a span that others cover, which do not overlap."""
    return sum(max(0.0, min(end, within[1]) - max(start, within[0])) for start, end in spans)
