"""The records of a folder as a table: listed, filtered and exported."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec

from foretell.errors import BadInput, first_of
from foretell.files import shown
from foretell.records.columns import IDENTITY, Row, row
from foretell.records.query import select
from foretell.records.store import files, records


class FoundRecords(NamedTuple):
    """Lines of the table, oldest first, the files that are no records, with the reason, and what is doubted."""

    rows: list[Row]
    unreadable: dict[str, str]
    doubts: dict[str, str]  # by the record's name


def table(folder: Path) -> FoundRecords:
    """All records of a folder."""
    found = FoundRecords([], {}, {})
    for path, one in records(folder):
        if isinstance(one, BadInput):
            found.unreadable[shown(path)] = one.what
            continue
        found.rows.append(row(path.stem, msgspec.to_builtins(one.record)))
        if one.doubts:
            found.doubts[path.stem] = "; ".join(one.doubts)
    return found


def results(folder: Path, condition: str = "", kind: str = "") -> FoundRecords:
    """The records of a folder for which a condition in SQL holds, of one kind or of all."""
    every = table(folder)
    rows = [row for row in every.rows if not kind or row["kind"] == kind]
    chosen_rows = select(rows, condition)
    names = {line[IDENTITY] for line in chosen_rows}
    return every._replace(rows=chosen_rows, doubts={name: why for name, why in every.doubts.items() if name in names})


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
