"""A table of one's own steps: the columns that `--anchor` and `foretell stack` read, a run a line."""

from __future__ import annotations

from collections.abc import Iterator

from foretell.oracle.anchors.table_of_runs import SECONDS, check_columns
from foretell.oracle.contribution import SCHEMA
from foretell.validation.studies.contributed import ROW, figure, measured, numbered
from foretell.validation.study import Line, MeasuredRun, NotScored, Unmapped, mapped

COLUMNS = frozenset({"model", "plan", "cluster", "batch"})


def rows(lines: list[Line]) -> Iterator[MeasuredRun | NotScored]:
    """One run each, of PyTorch where no trainer is said."""
    if lines and not any(column in SECONDS for line in lines[:50] for column in line):
        check_columns(list(lines[0]), "the table")
    return mapped(((line.get("id") or f"{at}", numbered(line, at)) for at, line in enumerate(lines, 1)), _row)


def _row(name: str, line: Line) -> MeasuredRun:
    try:
        seconds = next((figure(line, column) * unit for column, unit in SECONDS.items() if line.get(column)), 0.0)
        said = {"trainer": line.get("trainer") or "pytorch", "memory": line.get("memory") or "device"}
        return measured(name, {**line, **said, "contributed": f"{SCHEMA}", "step_seconds": repr(seconds)})
    except Unmapped as reason:
        raise Unmapped(f"row {line[ROW]}: {reason}") from None
