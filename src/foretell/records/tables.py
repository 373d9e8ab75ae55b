"""Tables in files that other programs read: CSV, or Parquet and Arrow by pyarrow."""

from __future__ import annotations

import csv
import importlib
from collections.abc import Callable, Iterable, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final

from foretell.errors import BadInput, MissingExtra

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
    try:
        Path(name).touch()
    except OSError as problem:
        what = f"{name} cannot be written: {problem.strerror}"
        raise BadInput(what, where="--table", fix="another file") from None
    return name


def write_table(
    file: str | PathLike[str],
    columns: Sequence[str],
    lines: Callable[[], Iterable[Sequence[Any]]],
    arrow: Callable[[], Any],
) -> None:
    """Write lines to a .csv, or the same as a pyarrow.Table to a .parquet or .arrow file."""
    path = Path(writable(file))
    if path.suffix == ".csv":
        write_csv(path, columns, lines())
    elif path.suffix == ".parquet":
        pyarrow("parquet").write_table(arrow(), path)
    else:
        pyarrow("feather").write_feather(arrow(), str(path))


def write_csv(path: Path, columns: Sequence[str], lines: Iterable[Sequence[Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(columns)
        out.writerows(lines)
