"""Tables in files that other programs read: CSV, or Parquet and Arrow by pyarrow."""

from __future__ import annotations

import csv
import importlib
import io
from collections.abc import Callable, Iterable, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final

from foretell.errors import BadInput, MissingExtra
from foretell.files import check_file, save

ARROW: Final = (".parquet", ".arrow")


def pyarrow(part: str = "") -> Any:
    """The package, or a module of it."""
    try:
        return importlib.import_module(f"pyarrow.{part}" if part else "pyarrow")
    except ImportError:
        raise MissingExtra("this table needs pyarrow", fix="pip install 'foretell[table]', or a .csv") from None


def writable(file: str | PathLike[str]) -> str:
    """The name of a file that a table can be written to, made sure of before a long search."""
    name = fspath(file)
    if Path(name).suffix not in (".csv", *ARROW):
        raise BadInput(f"{name}: no table is written like this", where="--table", fix="plans.csv, plans.parquet")
    if Path(name).suffix in ARROW:
        pyarrow()
    check_file(Path(name), "--table")
    return name


def write_table(
    file: str | PathLike[str],
    columns: Sequence[str],
    lines: Callable[[], Iterable[Sequence[Any]]],
    arrow: Callable[[], Any],
) -> None:
    """Write lines to a .csv, or the same as a pyarrow.Table to a .parquet or .arrow file."""
    path = Path(writable(file))
    content = as_csv(columns, lines()) if path.suffix == ".csv" else as_arrow(arrow(), path.suffix)
    save(path, content, "table")


def as_csv(columns: Sequence[str], lines: Iterable[Sequence[Any]]) -> bytes:
    text = io.StringIO(newline="")
    out = csv.writer(text, lineterminator="\n")
    out.writerow(columns)
    out.writerows(lines)
    return text.getvalue().encode()


def as_arrow(table: Any, suffix: str) -> bytes:
    """A pyarrow.Table as the content of a .parquet or .arrow file."""
    content = io.BytesIO()
    if suffix == ".parquet":
        pyarrow("parquet").write_table(table, content)
    else:
        pyarrow("feather").write_feather(table, content)
    return content.getvalue()
