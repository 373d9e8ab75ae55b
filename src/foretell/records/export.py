"""Lines of a table written to a file: CSV, JSON or Parquet by its ending; whole, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from foretell.errors import BadInput
from foretell.files import save
from foretell.records.columns import COLUMNS, IDENTITY
from foretell.records.tables import as_arrow, as_csv, pyarrow

Lines: TypeAlias = Sequence[Sequence[Any]]


def export(file: str, columns: Sequence[str], lines: Lines) -> None:
    """Write lines to a file that a person named; one that is there is replaced."""
    target = Path(file)
    if target.suffix not in WRITERS:
        raise BadInput(f"{file!r} has no ending that says how to write it", where="--to", fix=", ".join(WRITERS))
    save(target, WRITERS[target.suffix](columns, lines), "table")


def _json(columns: Sequence[str], lines: Lines) -> bytes:
    rows = [dict(zip(columns, line, strict=True)) for line in lines]
    return msgspec.json.format(msgspec.json.encode(rows), indent=1) + b"\n"


def _parquet(columns: Sequence[str], lines: Lines) -> bytes:
    arrow = pyarrow()
    values = list(zip(*lines, strict=True)) or [()] * len(columns)
    made = {
        name: arrow.array(column, arrow.string() if _is_text(name, column) else arrow.float64())
        for name, column in zip(columns, values, strict=True)
    }
    return as_arrow(arrow.table(made), ".parquet")


def _is_text(name: str, values: Sequence[Any]) -> bool:
    """A column by what it holds; one that holds nothing, by its name."""
    if all(value is None for value in values):
        return name == IDENTITY or (name in COLUMNS and not COLUMNS[name].numeric)
    return any(isinstance(value, str) for value in values)


WRITERS: Final[dict[str, Callable[[Sequence[str], Lines], bytes]]] = {
    ".csv": as_csv,
    ".json": _json,
    ".parquet": _parquet,
}
