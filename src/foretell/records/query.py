"""Questions in SQL about records, answered by SQLite over one table in memory.

A query may read that table and nothing else: no file, no other table, and it changes nothing. It ends after a time and
after so many bytes of answer. What a record does not have is NULL: a comparison with it is unknown, and the record is
left out.
"""

from __future__ import annotations

import re
import sqlite3
import statistics
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from sys import getsizeof
from typing import Any, Final, NamedTuple, NoReturn

from foretell.errors import BadInput
from foretell.records.columns import COLUMNS, IDENTITY, Row, check_column, is_numeric
from foretell.records.doubts import in_future

TABLE: Final = "records"

CONDITION: Final = "plan like 'dp%' and step_seconds < 0.1"
QUERY: Final = f"SELECT plan, step_seconds FROM {TABLE}"

FUNCTIONS: Final = """
abs ceil ceiling coalesce exp floor glob iif ifnull instr length like ln log log10 log2 lower ltrim max min nullif
pow power replace round rtrim sign sqrt substr substring trim typeof unicode upper
avg count group_concat median sum total
cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank row_number
date datetime julianday strftime time unixepoch
"""
"""What a query may call: nothing that loads code, reads a file or makes a value of any size."""

SECONDS: Final = 10.0
"""That a query may take; a table of 100,000 records is grouped and sorted in one."""

LOOKS: Final = 10_000
"""Steps of SQLite between two looks at the clock: well under a millisecond."""

MOST_BYTES: Final = 64 << 20
"""Of an answer; a join of the table with itself has no bounds of its own."""

LONGEST: Final = 1 << 20
"""Bytes of one value."""

_TOKEN: Final = re.compile(
    r"(?P<text>'(?:[^']|'')*')|(?P<number>\b\d[\w.]*)|(?P<sign>[<>=!]+|\b(?:like|between)\b|\bin\s*\()"
    r'|(?P<word>\w+)|(?P<quoted>".*?")',
    re.IGNORECASE,
)


class QueryResult(NamedTuple):
    """To a query: columns and lines."""

    columns: list[str]
    lines: list[Sequence[Any]]


def select(rows: Sequence[Row], condition: str) -> list[Row]:
    """The rows for which a condition holds, oldest first; an empty condition holds for all."""
    if not condition.strip():
        return sorted(rows, key=_moment)
    _check_kinds(condition)
    try:
        columns, lines = _asked(rows, f"SELECT * FROM {TABLE} WHERE {condition}")
    except sqlite3.Error as problem:
        missing = re.fullmatch(r"no such column: (\w+)", str(problem))
        if missing:
            check_column(missing[1], "--where")
        raise BadInput(f"{condition!r} is no condition: {_said(problem)}", where="--where", fix=CONDITION) from None
    return sorted((dict(zip(columns, line, strict=True)) for line in lines), key=_moment)


def _moment(row: Row) -> tuple[bool, str, str]:
    """Oldest first. A record of a day that has not come is no newer than the others: it comes before them."""
    return not in_future(str(row["created"])), str(row["created"]), str(row[IDENTITY])


def query(rows: Sequence[Row], sql: str) -> QueryResult:
    """What a query about the table `records` answers."""
    try:
        return _asked(rows, sql)
    except sqlite3.Error as problem:
        raise BadInput(f"SQLite says: {_said(problem)}", where="--sql", fix=QUERY) from None


def _asked(rows: Sequence[Row], sql: str) -> QueryResult:
    with _table(rows) as database:
        try:
            cursor = database.execute(sql)
            columns = [column[0] for column in cursor.description or ()]
            return QueryResult(columns, list(_bounded(cursor)))
        except (sqlite3.Warning, ValueError) as problem:  # two statements; letters that no query has
            raise sqlite3.ProgrammingError(str(problem)) from None


def _bounded(lines: Iterable[Sequence[Any]]) -> Iterator[Sequence[Any]]:
    """The lines, as long as they are not too many bytes."""
    left = MOST_BYTES
    for line in lines:
        left -= getsizeof(line) + sum(map(getsizeof, line))
        if left < 0:
            raise sqlite3.DataError(f"the answer has more than {MOST_BYTES >> 20} MiB; `limit 1000` ends it earlier")
        yield line


@contextmanager
def _table(rows: Sequence[Row]) -> Generator[sqlite3.Connection]:
    """The rows as a table; from then on it can only be read."""
    names = [IDENTITY, *COLUMNS]
    kinds = ", ".join(f"{name} {'REAL' if is_numeric(name) else 'TEXT'}" for name in names)
    with closing(sqlite3.connect(":memory:")) as database:
        database.create_aggregate("median", 1, _Median)
        database.execute("PRAGMA case_sensitive_like = ON")
        database.execute(f"CREATE TABLE {TABLE} ({kinds})")
        blanks = ", ".join("?" * len(names))
        database.executemany(f"INSERT INTO {TABLE} VALUES ({blanks})", ([row[name] for name in names] for row in rows))
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
        database.set_authorizer(_permission)
        end = time.monotonic() + SECONDS
        database.set_progress_handler(lambda: time.monotonic() > end, LOOKS)
        yield database


def _permission(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    permitted = (
        action == sqlite3.SQLITE_SELECT
        or (action == sqlite3.SQLITE_READ and first == TABLE)
        or (action == sqlite3.SQLITE_FUNCTION and second is not None and second.lower() in FUNCTIONS.split())
    )
    return sqlite3.SQLITE_OK if permitted else sqlite3.SQLITE_DENY


class _Median:
    """The median as an aggregate, which SQLite has not."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def step(self, value: float | None) -> None:
        if value is not None:
            self.values.append(value)

    def finalize(self) -> Any:
        return statistics.median(self.values) if self.values else None


def _said(problem: sqlite3.Error) -> str:
    """What SQLite says, and what it means where that is not plain."""
    if str(problem) == "interrupted":
        return f"interrupted after {SECONDS:g} seconds; fewer tables in a join, or a condition, take less"
    refused = "not authorized" in str(problem) or "prohibited" in str(problem)
    return f"{problem} (only the table {TABLE!r} can be read)" if refused else str(problem)


def _check_kinds(condition: str) -> None:
    """Refuse a number compared with a text, which SQLite would convert and then find nothing."""

    def wrong(what: str) -> NoReturn:
        raise BadInput(f"{condition!r} is no condition: {what}", where="--where", fix=CONDITION)

    found = [match for match in _TOKEN.finditer(condition) if match[0].lower() != "not"]
    for left, sign, right in zip(found, found[1:], found[2:], strict=False):
        names = [side[0].lower() for side in (left, right) if side[0].lower() in (IDENTITY, *COLUMNS)]
        kinds = {side.lastgroup for side in (left, right)} - {"word"}
        if sign.lastgroup == "sign" and names and kinds == ({"text"} if is_numeric(names[0]) else {"number"}):
            wrong(f"{names[0]} is {'a number' if is_numeric(names[0]) else 'a text'}")
    if any(match.lastgroup == "quoted" for match in found):
        wrong("a text stands in single quotes")
