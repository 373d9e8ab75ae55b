"""Steps that people measured themselves: the rows of `foretell contribute`, as JSON lines."""

from __future__ import annotations

import re
from collections.abc import Iterator

from foretell.model import zoo
from foretell.oracle.contribution import HERE, SCHEMA
from foretell.validation.study import (
    Line,
    MeasuredPeak,
    MeasuredRun,
    NotScored,
    Number,
    Unmapped,
    mapped,
    real,
    row,
    stated,
    whole,
    whole_or,
)

COLUMNS = frozenset({"contributed", "model", "plan", "cluster", "trainer", "batch", "step_seconds"})

MEMORY: dict[str, Number] = {"reserved": "reserved", "device": "device", "allocated": "allocated"}


def rows(lines: list[Line]) -> Iterator[MeasuredRun | NotScored]:
    """One run each."""
    return mapped(((line.get("id") or f"{at}", numbered(line, at)) for at, line in enumerate(lines, 1)), _row)


def numbered(line: Line, at: int) -> Line:
    """The line with its number, which a reason says."""
    return {**line, ROW: f"{at}"}


ROW = "row of the file"


def _row(name: str, line: Line) -> MeasuredRun:
    try:
        return measured(name, line)
    except Unmapped as reason:
        raise Unmapped(f"row {line[ROW]}: {reason}") from None


def measured(name: str, line: Line) -> MeasuredRun:
    """The run of a line."""
    if whole(line, "contributed") != SCHEMA:
        raise Unmapped(f"a row of form {line['contributed']}; this foretell reads {SCHEMA}")
    model = zoo.canonical(stated(line, "model"))  # a name of a hub is one of the zoo too
    for key, text in (("model", model), ("cluster", line["cluster"]), ("trainer", line["trainer"])):
        if ".toml" in text.lower() or "/" in text:
            raise Unmapped(f"{key} {fit_in(text)} is a file, not a name")
    if HERE in line["cluster"].lower():
        raise Unmapped(f"cluster is {HERE}, which is another one here")
    seconds, peak = figure(line, "step_seconds"), figure(line, "memory_bytes")
    if not seconds:
        raise Unmapped("no step was measured")
    kind = MEMORY.get(line.get("memory", ""))
    seq = whole_or(line, "seq", 0)
    if seq and not re.search(r"[:,]seq=", model):
        model = f"{model}{',' if ':' in model else ':'}seq={seq}"
    return row(
        name,
        model,
        stated(line, "plan"),
        stated(line, "cluster"),
        batch=whole(line, "batch"),
        trainer=stated(line, "trainer"),
        optimizer=line.get("optimizer", ""),
        sequence=seq,
        step_seconds=seconds,
        memory=[MeasuredPeak(peak, kind, "worst")] if peak and kind else [],
        subsets=(re.split(r"[:0-9-]", model)[0], line["trainer"]),
    )


def figure(line: Line, column: str) -> float:
    """A measured number; what is none is told as it was written, and without its unit."""
    try:
        return real(line, column)
    except Unmapped:
        text = line[column]
        number = re.match(r"\s*([0-9]+(?:\.[0-9]+)?)\s*[A-Za-z]", text)
        way = f"; try {number[1]}, without a unit" if number else ""
        raise Unmapped(f"{column} is {fit_in(text)!r}, no number{way}") from None


def fit_in(text: str) -> str:
    """A cell, short enough for a reason."""
    return text if len(text) <= 32 else f"{text[:29]}..."
