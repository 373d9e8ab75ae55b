"""A comparison on the disk: a folder with what was asked (`study.json`) and one file for each row.

A row is written whole or not at all, as soon as it is known. So whatever kills a comparison, what was measured is
there, and the same command goes on from it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from foretell.bench.row import BenchRow
from foretell.errors import BadInput
from foretell.files import read_json, write_whole

SCHEMA = 1
ABOUT = "study.json"
ROWS = "rows"

Kind = TypeVar("Kind")


class About(msgspec.Struct, frozen=True, kw_only=True):
    """Where and how a study was made."""

    schema: int = SCHEMA
    command: str
    created: str  # UTC, ISO 8601
    foretell: str
    machine: str  # in words
    cores: int
    hosts: int = 1


class BenchStudy(msgspec.Struct, frozen=True, kw_only=True):
    """All rows of a folder."""

    about: About
    rows: tuple[BenchRow, ...]  # by task, engine, ranks and seed
    unread: tuple[str, ...] = ()  # files that are no rows, and why

    def ok(self) -> tuple[BenchRow, ...]:
        return tuple(row for row in self.rows if row.ok)


def begin(folder: Path, about: About) -> None:
    """Make the folder of a study. One that was begun stays as it is."""
    (folder / ROWS).mkdir(parents=True, exist_ok=True)
    if not (folder / ABOUT).is_file():
        _write(folder / ABOUT, about)


def keep(folder: Path, row: BenchRow) -> Path:
    """Write a row; one of the same question is replaced."""
    file = folder / ROWS / f"{row.pair}-{row.engine}-{row.ranks}-{row.seed}-{row.fingerprint}.json"
    _write(file, row)
    return file


def read(folder: Path) -> BenchStudy:
    """The study of a folder."""
    if not (folder / ABOUT).is_file():
        what = f"{folder} is no study: it has no {ABOUT}"
        raise BadInput(what, where=str(folder), fix=f"foretell bench --quick --out {folder}")
    rows, unread = _sorted_out(folder)
    about = _read(folder / ABOUT, About)
    return BenchStudy(about=about, rows=tuple(sorted(rows.values(), key=order)), unread=unread)


def kept(folder: Path) -> dict[str, BenchRow]:
    """The rows of a folder, by the fingerprint of what was asked."""
    return _sorted_out(folder)[0]


def _sorted_out(folder: Path) -> tuple[dict[str, BenchRow], tuple[str, ...]]:
    """Rows that can be read, by their fingerprints, and what is wrong with the others: one hides none of the rest."""
    rows: dict[str, BenchRow] = {}
    unread: list[str] = []
    for file in sorted((folder / ROWS).glob("*.json")):
        try:
            row = _read(file, BenchRow)
        except BadInput as problem:
            unread.append(f"{file.name} {problem.what}")
        else:
            rows[row.fingerprint] = row
    return rows, tuple(unread)


def order(row: BenchRow) -> tuple[str, str, int, int, str]:
    """As rows stand in tables."""
    return row.pair, row.engine, row.ranks, row.seed, row.fingerprint


def _read(file: Path, kind: type[Kind]) -> Kind:
    return read_json(file, kind, "row of a study", fix="remove it: it is measured again")


def _write(file: Path, content: Any) -> None:
    """Whole: a crash leaves no half file behind."""
    try:
        write_whole(file, msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")
    except OSError as problem:
        raise BadInput(f"cannot be written: {problem.strerror}", where=str(file), fix="another --out") from None
