"""foretell goodput: what failures and checkpoints leave of a run, by formula and as it was measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from foretell.cli.table import table
from foretell.cli.training_options import span
from foretell.errors import BadInput
from foretell.units import show_span

if TYPE_CHECKING:
    from foretell.oracle.goodput import Goodput
    from foretell.runtime.restart_log import RestartLog

EXAMPLE = "foretell goodput --mtbf 3h --checkpoint 40s --restart 5min"


@click.command("goodput", short_help="What failures and checkpoints leave of a run.")
@click.argument("record", required=False, type=click.Path(exists=True, dir_okay=False))
@click.option("--mtbf", metavar="TIME", help="Mean time between failures of the job: 3h.")
@click.option("--checkpoint", metavar="TIME", help="Time to write a checkpoint: 40s.")
@click.option("--restart", metavar="TIME", help="Time from a failure until training resumes: 5min (0).")
@click.option("--every", metavar="TIME", help="Time between checkpoints: 30min (the best).")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(record: str | None, as_json: bool, **options: str | None) -> None:
    """Goodput: the share of a run spent on steps that count (Young, Daly).

    With the RECORD of a run that wrote checkpoints (`foretell run --checkpoint FOLDER
    --fail-every 30s`), what was measured is printed beside it.
    """
    import msgspec

    from foretell.oracle.goodput import goodput

    measured = _lives(record) if record is not None else None
    times = {name: span(text, f"--{name}") for name, text in options.items()}
    if measured is not None:
        times = {name: times[name] or own for name, own in _of_run(measured).items()}
    if measured is not None and not measured.checkpoints and not times["checkpoint"]:
        what = "the run wrote no checkpoint, and nothing says how long one takes"
        raise BadInput(what, where="--checkpoint", fix="--checkpoint 40s, or a run with a smaller --checkpoint-every")
    if measured is not None and not times["mtbf"]:
        raise BadInput("the run had no failure, and nothing says how often one comes", where="--mtbf", fix="--mtbf 3h")
    for name in ("mtbf", "checkpoint"):
        if not times[name]:
            raise BadInput(f"nothing says the {name}", where=f"--{name}", fix=EXAMPLE)
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
    lines = [
        ("goodput", f"{found.goodput:.1%} of the time is spent on steps that count"),
        ("failures", f"one every {show_span(found.mtbf)}, {_over(found.restart_seconds)}"),
        ("checkpoints", f"{_time(found.checkpoint_seconds)} each, every {_time(found.interval)} of steps"),
        ("best", f"every {_time(found.best_interval)}: {found.best_goodput:.1%}; Young: {_time(found.young_interval)}"),
    ]
    head = "\n".join(f"{name:<14}{text}" for name, text in lines)
    return f"{head}\n\n{_table(found, measured)}" if measured else head


def _over(restart: float) -> str:
    return f"{_time(restart)} to get over one" if restart else "0 s to get over one (no --restart is given)"


def _table(found: Goodput, measured: RestartLog) -> str:
    """The two sides of a run: expected over many runs like it, and this one."""
    wall = measured.productive_seconds / found.goodput
    failures = wall / (found.mtbf + found.restart_seconds)  # none comes while the run gets over the last one
    rows = [
        ["goodput", f"{found.goodput:.1%}", f"{measured.goodput:.1%}"],
        ["run", _time(wall), _time(measured.seconds)],
        ["failures", f"{failures:.1f}", f"{measured.failures}"],
    ]
    return table(["", "expected", "measured"], rows)


def _time(seconds: float) -> str:
    from foretell.cli.run_pages import show_seconds

    return show_seconds(seconds) if seconds < 60 else show_span(seconds)
