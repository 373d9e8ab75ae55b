"""An export of Nsight Systems to SQLite: `nsys export --type sqlite report.nsys-rep`. A device of a process is a rank.

Tables and columns are those of NVIDIA's "SQLite Schema Reference" (Nsight Systems, Post-Collection Analysis Guide):
kernels in CUPTI_ACTIVITY_KIND_KERNEL, copies in ..._MEMCPY and ..._MEMSET, ranges in NVTX_EVENTS, names by their number
in StringIds; times in nanoseconds. A globalTid holds the process and, in its lowest 24 bits, the thread; a globalPid is
the same with no thread. Steps are NVTX ranges whose text begins with "step" or is a ProfilerStep.
"""

from __future__ import annotations

import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from foretell.errors import BadInput
from foretell.files import read_head, shown
from foretell.oracle.traces import MESSAGES, SQLITE, RawTrace, Span, TracedWork

SUMMARY = "an export of Nsight Systems: nsys export --type sqlite"

NANOSECOND: Final = 1e-9
STEP: Final = re.compile(r"(?:step|iteration|ProfilerStep)\W*\d*$", re.I)
KERNELS: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
COPIES: Final = {"CUPTI_ACTIVITY_KIND_MEMCPY": "copy", "CUPTI_ACTIVITY_KIND_MEMSET": "set"}
THREAD_BITS: Final = 24
NOBODY: Final = -1
"""The process of what an export does not tell the process of."""

MOST: Final = 20_000_000
"""Events that are read of one file."""


def read(path: Path) -> list[RawTrace] | None:
    if read_head(path, "trace", len(SQLITE), fix=SUMMARY) != SQLITE:
        return None
    try:
        with sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True) as file:
            return _ranks(file, path)
    except (sqlite3.Error, OverflowError, TypeError, ValueError) as problem:
        raise BadInput(f"not an export of Nsight Systems: {problem}", where=shown(path), fix=SUMMARY) from None


class _TracedRank(NamedTuple):
    """Whose a kernel is: processes of one host may each see a device 0, and one process several."""

    device: int
    process: int


def _ranks(file: sqlite3.Connection, path: Path) -> list[RawTrace]:
    tables = {str(name) for (name,) in file.execute("select name from sqlite_master where type = 'table'")}
    if KERNELS not in tables:
        raise BadInput("the export has no kernels", where=shown(path), fix="nsys profile --trace cuda,nvtx")
    busy: dict[_TracedRank, list[TracedWork]] = defaultdict(list)
    for rank, one in _kernels(file):
        busy[rank].append(one)
    for table, name in COPIES.items():
        for rank, stream, start, end in _spans(file, table) if table in tables else ():
            if rank in busy:  # a process that only copies there has its kernels on another device
                busy[rank].append(TracedWork(f"memory {name}", str(stream), start * NANOSECOND, end * NANOSECOND))
    steps = _steps(file) if "NVTX_EVENTS" in tables else {}
    found: list[RawTrace] = []
    for rank, own in sorted(busy.items()):
        messages = [one for one in own if MESSAGES.search(one.name)]
        kernels = [one for one in own if not MESSAGES.search(one.name)]
        found.append(RawTrace(None, kernels, messages, _one_by_one(_own(rank, steps), path)))
    return found


def _own(rank: _TracedRank, steps: Mapping[int, set[Span]]) -> list[Span]:
    """The steps of a rank: those that its process marked, or those of the only one that marked any."""
    if rank.process in steps:
        return sorted(steps[rank.process])
    known = rank.process != NOBODY and len(steps) > 1
    return [] if known else sorted(span for own in steps.values() for span in own)


def _kernels(file: sqlite3.Connection) -> Iterator[tuple[_TracedRank, TracedWork]]:
    rows = file.execute(
        f"select k.deviceId, {_process(file, KERNELS, 'k.globalPid')}, k.streamId, k.start, k.end, s.value"
        f" from {KERNELS} k left join StringIds s on s.id = k.shortName limit {MOST}"
    )
    for device, process, stream, start, end, name in rows:
        work = TracedWork(str(name or "kernel"), str(stream), start * NANOSECOND, end * NANOSECOND)
        yield _TracedRank(int(device), int(process)), work


def _spans(file: sqlite3.Connection, table: str) -> Iterator[tuple[_TracedRank, Any, int, int]]:
    process = _process(file, table, "globalPid")
    for device, of, stream, start, end in file.execute(
        f"select deviceId, {process}, streamId, start, end from {table} limit {MOST}"
    ):
        yield _TracedRank(int(device), int(of)), stream, start, end


def _process(file: sqlite3.Connection, table: str, column: str) -> str:
    """What tells a process: the number without that of its thread. Exports of before have none."""
    return f"{column} >> {THREAD_BITS}" if column.rpartition(".")[2] in _columns(file, table) else str(NOBODY)


def _columns(file: sqlite3.Connection, table: str) -> set[str]:
    return {str(row[1]) for row in file.execute(f"pragma table_info({table})")}


def _steps(file: sqlite3.Connection) -> dict[int, set[Span]]:
    """Those that each process marked; of nobody, where the export does not say whose they are."""
    text, join = ("n.text", "") if "textId" not in _columns(file, "NVTX_EVENTS") else (
        "coalesce(n.text, s.value)", " left join StringIds s on s.id = n.textId"
    )  # fmt: skip
    process = _process(file, "NVTX_EVENTS", "n.globalTid")
    rows = file.execute(
        f"select {text}, {process}, n.start, n.end from NVTX_EVENTS n{join} where n.end is not null limit {MOST}"
    )
    found: dict[int, set[Span]] = defaultdict(set)
    for name, of, start, end in rows:
        if name and STEP.match(str(name)) and end > start:
            found[int(of)].add((start * NANOSECOND, end * NANOSECOND))
    return found


def _one_by_one(spans: list[Span], path: Path) -> list[Span]:
    """Steps of one rank, if they are that: it is in one at a time."""
    for one, following in pairwise(spans):
        if following[0] < one[1]:
            what = f"steps overlap: one is over at {one[1]:.6f} s, and another begins at {following[0]:.6f} s"
            raise BadInput(what, where=shown(path), fix="an export for each rank, with one NVTX range `step N` a step")
    return spans
