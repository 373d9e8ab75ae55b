"""foretell results: the records that are kept, listed, filtered, shown and exported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from foretell.cli.named_record import read_named
from foretell.cli.notes import tell_notes
from foretell.errors import BadInput

if TYPE_CHECKING:
    from foretell.records.columns import Row
    from foretell.records.results import FoundRecords


@click.group("results", invoke_without_command=True, short_help="Kept records: list, filter, export.")
@click.option("--records", "folder", default="", metavar="FOLDER", help="Where they are (your records).")
@click.option("--where", "text", default="", metavar="TEXT", help="\"plan like 'dp%' and step_seconds < 0.1\".")
@click.option("--kind", default="", metavar="KIND", help="run, calibration, profile, answer or prediction.")
@click.option("--columns", default="", metavar="A,B", help="Columns to show; `--columns all` for all.")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="The newest ones only.")
@click.option("--to", "file", default="", metavar="FILE", help="Export to a .csv, .json or .parquet file.")
@click.option("--sql", default="", metavar="QUERY", help="A query on the table `records`, in SQLite's SQL.")
@click.option("--engine", hidden=True, expose_value=False, type=click.Choice(["python", "duckdb"]))  # there is one now
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_context
def command(context: click.Context, folder: str, file: str, sql: str, as_json: bool, **options: Any) -> None:
    """The records of runs, calibrations, profiles and sweeps.

    Conditions are those of SQL: = <> < <= > >=, like, in, between, is null,
    and, or, not. `foretell results show ID` shows one record; part of its
    name is enough.
    """
    from foretell.records.home import home

    place = Path(folder) if folder else home()
    if context.invoked_subcommand is not None:
        context.obj = place
        return
    columns, lines, found = _asked_in_sql(place, sql) if sql else _filtered(place, **options)
    if file:
        from foretell.records.export import export

        export(file, columns, lines)
    if as_json:
        rows = [dict(zip(columns, line, strict=True)) for line in lines]
        answer = {"folder": str(place), "records": len(lines), "rows": rows}
        click.echo(msgspec.json.encode(answer | {"unreadable": found.unreadable, "doubts": found.doubts}))
    elif file:
        click.echo(f"{len(lines)} records written to {file}")
    else:
        click.echo(_page(place, columns, lines, found, options["columns"]))
    if not as_json:
        tell_notes(f"left out, {why} ({path})" for path, why in found.unreadable.items())
        tell_notes(f"{name}: {why}" for name, why in found.doubts.items())


def _asked_in_sql(place: Path, sql: str) -> tuple[list[str], list[Any], FoundRecords]:
    from foretell.records.query import query
    from foretell.records.results import table

    every = table(place)
    answer = query(every.rows, sql)
    return answer.columns, answer.lines, every._replace(rows=[])


def _filtered(
    place: Path, text: str, kind: str, columns: str, last: int | None
) -> tuple[list[str], list[Any], FoundRecords]:
    from foretell.records.columns import COLUMNS, IDENTITY, check_column
    from foretell.records.results import results

    found = results(place, text, _known_kind(kind))
    words = columns.replace(",", " ").split()
    names = [IDENTITY, *COLUMNS] if not words or words == ["all"] else [check_column(one, "--columns") for one in words]
    rows = found.rows[-last:] if last else found.rows
    return names, [[_plain(row, name) for name in names] for row in rows], found


def _known_kind(kind: str) -> str:
    from foretell.records.record import KINDS

    if kind and kind not in KINDS:
        raise BadInput(f"records are of no kind {kind!r}", where="--kind", fix=", ".join(KINDS))
    return kind


def _plain(row: Row, name: str) -> Any:
    """A value as people write it: ranks are whole numbers."""
    value = row[name]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def _page(place: Path, columns: list[str], lines: list[Any], found: FoundRecords, asked: str) -> str:
    from foretell.cli.results_pages import chosen_page, page

    if not lines:
        return f"no record of {place} is like that" if place.is_dir() else f"there are no records yet in {place}"
    return page(found.rows[-len(lines) :]) if found.rows and not asked else chosen_page(columns, lines)


@command.command("show", short_help="One record.")
@click.argument("part", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="The whole record as it is kept.")
@click.pass_obj
def show(place: Path, part: str, as_json: bool) -> None:
    """One record, by its name or a part of it."""
    from foretell.cli.results_pages import record_page
    from foretell.records.results import chosen

    path = Path(part) if part.endswith(".json") and Path(part).is_file() else chosen(place, part)
    found = read_named(path)
    click.echo(msgspec.json.encode(found) if as_json else record_page(path, found))
