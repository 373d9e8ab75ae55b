"""The records of a folder as a table: listed, filtered and exported.

Two engines give the same answers: Python, which is always there, and DuckDB over the files (`engines/`).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from foretell.errors import BadInput, first_of
from foretell.records.columns import IDENTITY, Row
from foretell.records.where import Condition
from foretell.registry import OpenSet

ENGINES: Final = OpenSet("foretell.records.engines", "engine")

SUFFIX: Final = ".json"
"""Of a record. Files that are being written have another one, so that nothing half written is read."""


FEW: Final = 1000
"""Records up to which reading them one by one is as fast."""


class Found(NamedTuple):
    """Lines of the table, oldest first, and the files that are no records, with the reason."""

    rows: list[Row]
    unreadable: dict[str, str]


Engine: TypeAlias = Callable[[list[Path], Condition], Found]


def files(folder: Path) -> list[Path]:
    """What may be records: the files in a folder, by name."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.glob(f"*{SUFFIX}") if not path.name.startswith("."))


def results(folder: Path, condition: Condition, engine: str = "") -> Found:
    """The records of a folder for which a condition holds."""
    known = files(folder)
    many = len(known) > FEW and importlib.util.find_spec("duckdb") is not None
    select: Engine = ENGINES[engine or ("duckdb" if many else "python")].select
    found = select(known, condition)
    return Found(sorted(found.rows, key=_moment), found.unreadable)


def _moment(row: Row) -> tuple[str, str]:
    return str(row["created"]), str(row[IDENTITY])


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
