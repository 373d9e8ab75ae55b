"""A sweep written as a table that other programs read: CSV, Parquet or Arrow, one line a cell."""

from __future__ import annotations

import csv
import importlib
from pathlib import Path

from foretell.oracle.priced_plans import writable
from foretell.sweeping.cell import COLUMNS
from foretell.sweeping.sweep import Sweep


def write(found: Sweep, file: str) -> None:
    """Every line with full numbers; a blank is what a cell has no figure for."""
    name = writable(file)
    kind = Path(name).suffix
    if kind == ".csv":
        with Path(name).open("w", newline="") as out:
            lines = csv.writer(out, lineterminator="\n")
            lines.writerow(COLUMNS)
            lines.writerows([getattr(one, column) for column in COLUMNS] for one in found.rows)
        return
    table = importlib.import_module("pyarrow").table(
        {column: [getattr(one, column) for one in found.rows] for column in COLUMNS}
    )
    if kind == ".parquet":
        importlib.import_module("pyarrow.parquet").write_table(table, name)
    else:
        importlib.import_module("pyarrow.feather").write_feather(table, name)
