"""Somebody's whole sweep: a table with a run a line, as CSV or as JSON lines. What a line leaves out is asked about."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from foretell.errors import BadInput, first_of, near
from foretell.files import shown
from foretell.oracle.anchors import Anchor, measurement

SUMMARY = "a CSV with the columns model, plan, cluster, batch, step_seconds (and more, if wished), a run a line"

SECONDS: Final = {"step_seconds": 1.0, "seconds": 1.0, "step_ms": 1e-3, "step_time_ms": 1e-3}
"""Columns that hold the seconds of a step: ours, those of `foretell validate --rows`, and in milliseconds."""

WORDS: Final = ("model", "plan", "cluster", "batch", "seq", "trainer", "optimizer")
OTHERWISE: Final = {"cluster": ("on",), "memory_bytes": ("bytes",)}
"""Other names of columns."""

PHASES: Final = ("forward", "backward")
RAN: Final = ("", "ok")
"""What a column `outcome` says of a run that took its time."""

LINES: Final = 2000
"""Runs that are read of one table: each is predicted."""


def read(text: str, path: Path) -> tuple[Anchor, ...] | None:
    lines = _json_lines(text) if text.lstrip()[:1] == "{" else _csv_lines(text, shown(path))
    if lines is None:
        return None
    runs = [one for at, line in enumerate(lines) if (one := _run(line, f"{shown(path)}, run {at + 1}")) is not None]
    if not runs:
        raise BadInput(f"none of its {len(lines)} lines has a time", where=shown(path), fix=SUMMARY)
    if len(runs) > LINES:
        raise BadInput(f"{len(runs):,} runs", where=shown(path), fix=f"at most {LINES:,} of them")
    return tuple(runs)


def _csv_lines(text: str, where: str) -> list[Mapping[str, Any]] | None:
    head = [name.strip() for name in text.partition("\n")[0].strip("\ufeff\r").split(",")]
    if "plan" not in head or not any(name in SECONDS for name in head):
        check_columns(head, where)
        return None
    try:
        return list(csv.DictReader(io.StringIO(text.lstrip("\ufeff"), newline=""), skipinitialspace=True))
    except csv.Error:
        return None


def check_columns(head: Sequence[str], where: str) -> None:
    """Refuse what is a table of runs but for a column; what has none of its columns is of another form."""
    known = (*WORDS, *SECONDS, "on", "memory_bytes", *PHASES, "outcome", "id")
    if sum(name in known for name in head) < 2:
        return
    missing = [name for name in ("plan",) if name not in head]
    missing += [] if any(name in SECONDS for name in head) else [f"one of {', '.join(SECONDS)}"]
    strange = [name[:40] for name in head if name and name not in known]
    close = {name: near(name, known, 1) for name in strange}
    told = [f"{name} is perhaps {best[0]}" for name, best in close.items() if best]
    what = f"a table of runs without {' and '.join(missing)}" + (
        f"; unknown: {first_of(strange, 4)}" if strange else ""
    )
    raise BadInput(what, where=f"{where}, its first line", fix="; ".join(told) or SUMMARY)


def _json_lines(text: str) -> list[Mapping[str, Any]] | None:
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < 2:
        return None
    try:
        found = [msgspec.json.decode(line) for line in lines]
    except (msgspec.DecodeError, RecursionError):
        return None
    objects = [cast("dict[str, Any]", one) for one in found if isinstance(one, dict)]
    return cast("list[Mapping[str, Any]]", objects) if len(objects) == len(lines) and _timed(objects[0]) else None


def _timed(line: Mapping[str, Any]) -> bool:
    return any(name in line for name in SECONDS)


def _run(line: Mapping[str, Any], where: str) -> Anchor | None:
    """The run of a line; None where it did not end, or nobody timed it."""
    if str(line.get("outcome") or "") not in RAN:
        return None
    times = [_number(line[name], name, where) * unit for name, unit in SECONDS.items() if line.get(name)]
    if not times:
        return None
    asked = {word: _word(word, value, where) for word in WORDS for value in [_cell(line, word)] if value}
    if _is_number(asked.get("optimizer")):  # in a table of records, the seconds that it takes
        del asked["optimizer"]
    parts = {name: _number(line[name], name, where) for name in PHASES if line.get(name)}
    memory = _cell(line, "memory_bytes")
    return Anchor(
        form="table of runs",
        asked=asked,
        step_seconds=times[0],
        parts=parts if len(parts) == len(PHASES) else {},
        memory_bytes=_number(memory, "memory_bytes", where) if memory else 0.0,
        file=where,
    )


def _cell(line: Mapping[str, Any], name: str) -> Any:
    return next((line[one] for one in (name, *OTHERWISE.get(name, ())) if line.get(one)), "")


def _word(name: str, value: Any, where: str) -> str | int:
    if name not in measurement.NUMBERS:
        return str(value).strip()
    number = _number(value, name, where)
    if number < 1 or number != int(number):
        raise BadInput(f"{name} is {value!r}, not a whole number", where=where, fix=SUMMARY)
    return int(number)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):  # OverflowError: a whole number of hundreds of digits
        return False
    return True


def _number(value: Any, name: str, where: str) -> float:
    found = float(value) if _is_number(value) else math.nan
    if not 0 <= found <= measurement.LONGEST**2:
        raise BadInput(f"{name} is {repr(value)[:40]}, not a number from 0", where=where, fix=SUMMARY)
    return found
