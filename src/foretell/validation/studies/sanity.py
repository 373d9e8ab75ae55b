"""Well-known runs, each with its plan written out: the tables of docs/sanity.md, of runs and of memory.

Here, unlike in the other studies, somebody had to choose what the source leaves open (virtual stages, recompute). The
choice is the plan in the file, the note says what is open. So these runs belong to no scoreboard, and no constant or
band is learnt from them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import msgspec

from foretell.hardware import catalog
from foretell.validation.study import (
    GIB,
    Line,
    MeasuredPeak,
    MeasuredRun,
    NotScored,
    Publication,
    Unmapped,
    mapped,
    real,
    row,
    stated,
    whole,
)

COLUMNS = frozenset(
    {"case", "figure", "unit", "source", "known", "model", "cluster", "plan", "batch", "seq", "trainer"}
)

UNITS = ("s", "tokens/s/GPU")


def rows(lines: list[Line]) -> Iterator[MeasuredRun | NotScored]:
    """Every line is a run that finished; memory, where it is printed, is what torchtitan reserved on the worst rank."""
    return mapped(((line.get("case", ""), line) for line in lines), _row)


def _row(name: str, line: Line) -> MeasuredRun:
    unit, figure = stated(line, "unit"), real(line, "figure")
    if unit not in UNITS:
        raise Unmapped(f"unit is {unit}")
    if not figure:
        raise Unmapped("no figure was published")
    batch, sequence, where = whole(line, "batch"), whole(line, "seq"), stated(line, "cluster")
    size = real(line, "memory_gib")
    run = row(
        name,
        _with_sequence(stated(line, "model"), sequence),
        stated(line, "plan"),
        where,
        batch=batch,
        trainer=stated(line, "trainer"),
        sequence=sequence,
        step_seconds=figure if unit == "s" else batch * sequence / (figure * _ranks(where)),
        memory=[MeasuredPeak(size * GIB, "reserved", "worst")] if size else [],
    )
    return msgspec.structs.replace(run, publication=_publication(line, figure, unit))


def _with_sequence(model: str, sequence: int) -> str:
    return f"{model}{',' if ':' in model else ':'}seq={sequence}"


def _publication(line: Line, figure: float, unit: str) -> Publication:
    return Publication(
        figure=figure,
        unit=unit,
        source=stated(line, "source"),
        known=stated(line, "known"),
        seen=line.get("seen") == "yes",
        note=line.get("note", ""),
        memory_before=real(line, "before_gib") * GIB,
    )


@functools.cache
def _ranks(cluster: str) -> int:
    return catalog.cluster(cluster).ranks
