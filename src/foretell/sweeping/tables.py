"""A sweep written as a table that other programs read: CSV, Parquet or Arrow, one line a cell."""

from __future__ import annotations

from foretell.records.tables import pyarrow, write_table
from foretell.sweeping.cell import COLUMNS
from foretell.sweeping.sweep import Sweep


def write(found: Sweep, file: str) -> None:
    """Every line with full numbers; a blank is what a cell has no figure for."""
    lines = [[getattr(row, column) for column in COLUMNS] for row in found.rows]
    write_table(
        file,
        COLUMNS,
        lambda: lines,
        lambda: pyarrow().table({name: [line[at] for line in lines] for at, name in enumerate(COLUMNS)}),
    )
