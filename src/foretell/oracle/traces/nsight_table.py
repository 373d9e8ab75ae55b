"""A table of Nsight Systems: `nsys stats --report cuda_gpu_trace --format csv`. It has no steps: all of it is one.

Columns are those of NVIDIA's description of the report (Start, Duration, Device, Strm, Name), with the unit behind
the times: "Start (ns)".
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from foretell.errors import BadInput
from foretell.files import read_bytes, shown
from foretell.oracle.traces import MESSAGES, RawTrace, TracedWork

SUMMARY = "a table of Nsight Systems: nsys stats --report cuda_gpu_trace --format csv"

TIMES: Final = re.compile(r"^(Start|Duration)\s*\((ns|us|ms|s|nsec|usec|msec|sec)\)$")
UNITS: Final = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "s": 1.0}


def read(path: Path) -> list[RawTrace] | None:
    text = read_bytes(path, "trace", fix=SUMMARY).decode("utf-8", "replace")
    at = text.find("Start (")
    if at < 0 or "Duration (" not in text[at : at + 200] or "traceEvents" in text[:at]:
        return None
    lines = text[text.rfind("\n", 0, at) + 1 :]  # behind what nsys says before
    devices: dict[str, list[TracedWork]] = defaultdict(list)
    try:
        for row in csv.DictReader(io.StringIO(lines, newline="")):
            if row.get("Name"):
                devices[str(row.get("Device") or "")].append(_busy(row, path))
    except csv.Error as problem:
        raise BadInput(f"not a table: {problem}", where=shown(path), fix=SUMMARY) from None
    if not devices:
        raise BadInput("the table has no kernels", where=shown(path), fix=SUMMARY)
    found: list[RawTrace] = []
    for _, own in sorted(devices.items()):
        messages = [one for one in own if MESSAGES.search(one.name)]
        found.append(RawTrace(None, [one for one in own if not MESSAGES.search(one.name)], messages, []))
    return found


def _busy(row: Mapping[str, str | None], path: Path) -> TracedWork:
    times: dict[str, float] = {}
    for column, value in row.items():
        kind = TIMES.match(column or "")
        if kind:
            times[kind[1]] = _seconds(value, kind[2], path)
    if len(times) < 2:
        raise BadInput("a line has no start and duration", where=shown(path), fix=SUMMARY)
    return TracedWork(str(row["Name"]), str(row.get("Strm") or ""), times["Start"], times["Start"] + times["Duration"])


def _seconds(value: str | None, unit: str, path: Path) -> float:
    try:
        found = float(value or "") * UNITS[unit[0]]
    except ValueError:
        found = math.nan
    if not 0 <= found < math.inf:
        raise BadInput(f"a time of {value!r}", where=shown(path), fix=SUMMARY)
    return found
