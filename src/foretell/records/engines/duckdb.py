"""DuckDB over the files: it reads them in parallel, and answers any question in SQL about the table `records`."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from foretell.errors import BadInput, MissingExtra
from foretell.records.columns import COLUMNS, IDENTITY, Column, Place
from foretell.records.engines import python
from foretell.records.record import SCHEMA, Record
from foretell.records.results import Found
from foretell.records.where import Always, Condition

LARGEST: Final = 2**30
"""Bytes of the largest record that is read."""

TABLE: Final = "records"


def select(files: list[Path], condition: Condition) -> Found:
    """Files that are no records of this version are found out by the other engine."""
    if not files:
        return Found([], {})
    database = connected()
    try:
        view(database, files)
        others = _rows(database, f"SELECT count(*) FROM {TABLE} WHERE NOT fine")[0][0]
        if others:
            return python.select(files, condition)
        names = [IDENTITY, *COLUMNS]
        listed = ", ".join(f'"{name}"' for name in names)
        rows = _rows(database, f"SELECT {listed} FROM {TABLE} WHERE {condition.sql()}")
        return Found([dict(zip(names, row, strict=True)) for row in rows], {})
    except _module().Error:
        return python.select(files, condition)
    finally:
        database.close()


class Answer(NamedTuple):
    """To a query: columns and lines, and the files that are no records, with the reason."""

    columns: list[str]
    lines: list[Sequence[Any]]
    unreadable: dict[str, str]


def query(files: list[Path], sql: str) -> Answer:
    """What an SQL query about `records` answers."""
    database = connected()
    try:
        unreadable = select(files, Always()).unreadable
        view(database, [path for path in files if str(path) not in unreadable])
        database.execute(f"CREATE TABLE kept AS SELECT * EXCLUDE (fine) FROM {TABLE}")
        database.execute(f"DROP VIEW {TABLE}")
        database.execute(f"ALTER TABLE kept RENAME TO {TABLE}")
        database.execute("SET enable_external_access = false")  # a question about records reads nothing else
        found = database.execute(sql)
        return Answer([column[0] for column in found.description or ()], found.fetchall(), unreadable)
    except _module().Error as problem:
        fix = f"SELECT plan, step_seconds FROM {TABLE}"
        raise BadInput(f"DuckDB says: {problem}", where="--sql", fix=fix) from None
    finally:
        database.close()


def _module() -> Any:
    try:
        return importlib.import_module("duckdb")
    except ModuleNotFoundError:
        raise MissingExtra("DuckDB is not installed", fix="pip install 'foretell[results]'") from None


def connected() -> Any:
    return _module().connect(":memory:")


def _rows(database: Any, sql: str) -> list[Sequence[Any]]:
    return database.execute(sql).fetchall()


def view(database: Any, files: list[Path]) -> None:
    """The table `records` over these files: a column is looked up in all places that it may have.

    A line is `fine` where its file is a record of this version.
    """
    columns = ", ".join(f'{_expression(column)} AS "{name}"' for name, column in COLUMNS.items())
    listed = ", ".join(_quoted(str(path)) for path in files) or "NULL"
    source = f"read_json_objects([{listed}], format='unstructured', filename=true, maximum_object_size={LARGEST})"
    if not files:
        source = "(SELECT NULL::JSON AS json, '' AS filename WHERE false)"
    stem = r"regexp_replace(parse_filename(filename), '\.json$', '')"
    fine = f"coalesce({_fine()}, false) AS fine"
    database.execute(f"CREATE VIEW {TABLE} AS SELECT {stem} AS {IDENTITY}, {fine}, {columns} FROM {source}")


def _fine() -> str:
    """Whether a file is a record of this version, by the same rules as `store.read`: its keys, and what they hold."""
    fields = msgspec.structs.fields(Record)
    known = ", ".join(_quoted(field.name) for field in fields)
    rules = [
        "json_type(json) = 'OBJECT'",
        f"list_has_all([{known}], json_keys(json))",
        f"json_type(json, '$.schema') IN ('BIGINT', 'UBIGINT') AND json_extract(json, '$.schema')::BIGINT = {SCHEMA}",
        "list_has_all(['VARCHAR'], json_type(json, '$.versions.*'))",
    ]
    for field in fields:
        if field.type is not int:
            found = f"json_type(json, '$.{field.name}')"
            kind = "VARCHAR" if field.type is str else "OBJECT"
            rules.append(f"{found} = '{kind}'" if field.required else f"coalesce({found}, '{kind}') = '{kind}'")
    return " AND ".join(f"({rule})" for rule in rules)


def _expression(column: Column) -> str:
    return f"coalesce({', '.join(_value(column, place) for place in column.places)}, NULL)"


def _value(column: Column, place: Place) -> str:
    path = _quoted(_path(place))
    kinds = "('BIGINT', 'UBIGINT', 'HUGEINT', 'DOUBLE')" if column.numeric else "('VARCHAR')"
    found = f"json_extract_string(json, {path})"
    cast = f"CAST({found} AS DOUBLE)" if column.numeric else found
    return f"CASE WHEN json_type(json, {path}) IN {kinds} THEN {cast} END"


def _path(place: Place) -> str:
    return "$" + "".join(f"[#{key}]" if isinstance(key, int) else f'."{key}"' for key in place)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
