"""The records of a folder as a table: listed, filtered and exported."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from foretell.errors import BadInput, first_of
from foretell.files import is_folder
from foretell.records.columns import Row, row
from foretell.records.query import select
from foretell.records.store import read

SUFFIX: Final = ".json"
"""Of a record. Files that are being written have another one, so that nothing half written is read."""


class FoundRecords(NamedTuple):
    """Lines of the table, oldest first, and the files that are no records, with the reason."""

    rows: list[Row]
    unreadable: dict[str, str]


def files(folder: Path) -> list[Path]:
    """What may be records: the files in a folder, by name."""
    if not is_folder(folder):
        return []
    return sorted(path for path in folder.glob(f"*{SUFFIX}") if not path.name.startswith("."))


def table(folder: Path) -> FoundRecords:
    """All records of a folder."""
    found = FoundRecords([], {})
    for path in files(folder):
        try:
            found.rows.append(row(path.stem, msgspec.to_builtins(read(path))))
        except BadInput as problem:
            found.unreadable[str(path)] = problem.what
    return found


def results(folder: Path, condition: str = "", kind: str = "") -> FoundRecords:
    """The records of a folder for which a condition in SQL holds, of one kind or of all."""
    every = table(folder)
    rows = [row for row in every.rows if not kind or row["kind"] == kind]
    return FoundRecords(select(rows, condition), every.unreadable)


def chosen(folder: Path, part: str) -> Path:
    """The one record whose name has this part."""
    named = [path for path in files(folder) if part in path.stem]
    exact = [path for path in named if path.stem == part]
    if len(exact or named) == 1:
        return (exact or named)[0]
    if not named:
        raise BadInput(f"no record has {part!r} in its name", where=str(folder), fix="foretell results")
    few = first_of([path.stem for path in named], 4)
    raise BadInput(f"{len(named)} records have {part!r} in their names", where=str(folder), fix=few)
