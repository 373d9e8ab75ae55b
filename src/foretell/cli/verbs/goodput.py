"""foretell goodput: what failures and checkpoints leave of a run, by formula and as it was measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from foretell.cli.table import table
from foretell.cli.training_options import span
from foretell.errors import BadInput
from foretell.units import show_percent, show_span

if TYPE_CHECKING:
    from foretell.oracle.goodput import Goodput
    from foretell.runtime.restart_log import RestartLog

EXAMPLE = "foretell goodput --mtbf 3h --checkpoint 40s --restart 5min"


@click.command("goodput", short_help="What failures and checkpoints leave of a run.")
@click.argument("record", required=False, type=click.Path(exists=True, dir_okay=False))
@click.option("--mtbf", metavar="TIME", help="Mean time between failures of the job: 3h.")
@click.option("--checkpoint", metavar="TIME", help="That writing a checkpoint takes: 40s.")
@click.option("--restart", metavar="TIME", help="From a failure until steps go on: 5min (0).")
@click.option("--every", metavar="TIME", help="Of steps between two checkpoints: 30min (the best).")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(record: str | None, as_json: bool, **options: str | None) -> None:
    """The share of wall-clock time that goes into steps that count (Young, Daly).

    With the RECORD of a run that had checkpoints (`foretell run --checkpoint
    FOLDER --fail-every 30s`): what was measured beside it, with the times of
    a checkpoint and of a restart that the run took.
    """
    import msgspec

    from foretell.oracle.goodput import goodput

    measured = _lives(record) if record is not None else None
    times = {name: span(text, f"--{name}") for name, text in options.items()}
    if measured is not None:
        times = {name: times[name] or own for name, own in _of_run(measured).items()}
    if measured is not None and not measured.checkpoints and not times["checkpoint"]:
        what = "the run wrote no checkpoint, so how long one takes is not known"
        raise BadInput(what, where="--checkpoint", fix="--checkpoint 40s, or a run with a smaller --checkpoint-every")
    if measured is not None and not times["mtbf"]:
        raise BadInput(
            "the run had no failure, so the mean time between failures is not known", where="--mtbf", fix="--mtbf 3h"
        )
    for name in ("mtbf", "checkpoint"):
        if not times[name]:
            raise BadInput(f"--{name} is missing", where=f"--{name}", fix=EXAMPLE)
    given = (times["mtbf"], times["checkpoint"], times["restart"], times["every"])
    found = goodput(*given, in_restarts=measured is None)
    if as_json:
        answer: dict[str, Any] = msgspec.to_builtins(found)
        click.echo(msgspec.json.encode(answer | ({"measured": measured} if measured else {})))
    else:
        click.echo(_page(found, measured))


def _lives(record: str) -> RestartLog:
    from foretell.records.store import read
    from foretell.runtime.comparison import ran

    found = ran(read(Path(record)), record).measured.lives
    if found is None:
        raise BadInput("a run without checkpoints", where=record, fix="foretell run ... --checkpoint FOLDER")
    return found


def _of_run(measured: RestartLog) -> dict[str, float]:
    """What the run itself says, by the options that say otherwise."""
    return {
        "mtbf": _mtbf(measured),
        "checkpoint": measured.checkpoint_seconds,
        "restart": measured.restart_seconds,
        "every": measured.interval,
    }


def _mtbf(measured: RestartLog) -> float:
    """The one that was asked for; else the time in which a failure could come, by how many did."""
    exposed = measured.seconds - measured.failures * measured.restart_seconds
    return measured.mtbf or (exposed / measured.failures if measured.failures else 0.0)


def _page(found: Goodput, measured: RestartLog | None) -> str:
    best = show_percent(found.best_goodput)
    lines = [
        ("goodput", f"{show_percent(found.goodput)} of the wall-clock time goes into steps that count"),
        ("failures", f"one every {show_span(found.mtbf)}, {_over(found.restart_seconds)}"),
        ("checkpoints", f"{_time(found.checkpoint_seconds)} each, every {_time(found.interval)} of steps"),
        ("best", f"every {_time(found.best_interval)}: {best} (Young: {_time(found.young_interval)})"),
    ]
    head = "\n".join(f"{name:<14}{text}" for name, text in lines)
    return f"{head}\n\n{_table(found, measured)}" if measured else head


def _over(restart: float) -> str:
    return f"{_time(restart)} to restart" if restart else "0 s to restart (no --restart is given)"


def _table(found: Goodput, measured: RestartLog) -> str:
    """The two sides of a run: expected over many runs like it, and this one."""
    wall = measured.productive_seconds / found.goodput
    failures = wall / (found.mtbf + found.restart_seconds)  # none comes while the run gets over the last one
    rows = [
        ["goodput", show_percent(found.goodput), show_percent(measured.goodput)],
        ["run", _time(wall), _time(measured.seconds)],
        ["failures", f"{failures:.1f}", f"{measured.failures}"],
    ]
    return table(["", "expected", "measured"], rows)


def _time(seconds: float) -> str:
    from foretell.cli.run_pages import show_seconds

    return show_seconds(seconds) if seconds < 60 else show_span(seconds)
