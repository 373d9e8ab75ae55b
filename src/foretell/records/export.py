"""Lines of a table written to a file: CSV, JSON or Parquet by its ending; whole, or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from foretell.errors import BadInput
from foretell.records.columns import COLUMNS, IDENTITY
from foretell.records.tables import pyarrow, write_csv

Lines: TypeAlias = Sequence[Sequence[Any]]


def export(file: str, columns: Sequence[str], lines: Lines) -> None:
    """Write lines to a file that a person named; one that is there is replaced."""
    target = Path(file)
    if target.suffix not in WRITERS:
        raise BadInput(f"{file!r} has no ending that says how to write it", where="--to", fix=", ".join(WRITERS))
    handle, temporary = -1, ""
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".", suffix=target.suffix)
        os.close(handle)
        WRITERS[target.suffix](Path(temporary), columns, lines)
        Path(temporary).replace(target)
    except OSError as problem:
        raise BadInput(f"cannot be written: {problem.strerror}", where=file) from None
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)


def _json(path: Path, columns: Sequence[str], lines: Lines) -> None:
    rows = [dict(zip(columns, line, strict=True)) for line in lines]
    path.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=1) + b"\n")


def _parquet(path: Path, columns: Sequence[str], lines: Lines) -> None:
    arrow = pyarrow()
    values = list(zip(*lines, strict=True)) or [()] * len(columns)
    made = {
        name: arrow.array(column, arrow.string() if _is_text(name, column) else arrow.float64())
        for name, column in zip(columns, values, strict=True)
    }
    pyarrow("parquet").write_table(arrow.table(made), path)


def _is_text(name: str, values: Sequence[Any]) -> bool:
    """A column by what it holds; one that holds nothing, by its name."""
    if all(value is None for value in values):
        return name == IDENTITY or (name in COLUMNS and not COLUMNS[name].numeric)
    return any(isinstance(value, str) for value in values)


WRITERS: Final[dict[str, Callable[[Path, Sequence[str], Lines], None]]] = {
    ".csv": write_csv,
    ".json": _json,
    ".parquet": _parquet,
}
