"""foretell goodput: what failures and checkpoints leave of a run, by formula and as it was measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from foretell.cli.request_options import ON, OPTIMIZER, PLAN, SEQ, TRAINER
from foretell.cli.table import WIDTH, fit, folded, table
from foretell.cli.training_options import span
from foretell.errors import BadInput
from foretell.hardware import quantity
from foretell.units import show_bytes, show_percent, show_span

if TYPE_CHECKING:
    from foretell.oracle.goodput import CheckpointedJob, Goodput
    from foretell.runtime.restart_log import RestartLog

EXAMPLE = "foretell goodput --mtbf 3h --checkpoint 40s --restart 5min"
ON_CLUSTER = "foretell goodput llama3-70b --on 1024xh100 --device-mtbf 50000h --storage '20 GB/s'"


@click.command("goodput", short_help="What failures and checkpoints leave of a run.")
@click.argument("what", metavar="[MODEL | RECORD]", required=False)
@ON
@PLAN
@SEQ
@TRAINER
@OPTIMIZER
@click.option("--mtbf", metavar="TIME", help="Mean time between failures of the job: 3h.")
@click.option("--device-mtbf", metavar="TIME", help="The same of one device: 50000h; the job has all of them.")
@click.option("--node-mtbf", metavar="TIME", help="The same of a node, without its devices.")
@click.option("--checkpoint", metavar="TIME", help="Time to write a checkpoint: 40s.")
@click.option("--storage", metavar="RATE", help="Bandwidth of checkpoints, all ranks together: '20 GB/s'.")
@click.option("--restart", metavar="TIME", help="Time from a failure until training resumes: 5min (0).")
@click.option("--every", metavar="TIME", help="Time between checkpoints: 30min (the best).")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(what: str | None, on: str | None, as_json: bool, **options: Any) -> None:
    """The share of wall-clock time that goes into steps that count (Young, Daly).

    With a MODEL and --on: the size of its checkpoint by --storage, and failures of
    all devices that the plan takes (without one, of all there are).

    With the RECORD of a run that wrote checkpoints (`foretell run --checkpoint FOLDER
    --fail-every 30s`), what was measured is printed beside it.
    """
    import msgspec

    from foretell.oracle.goodput import goodput

    job = _job(what, on, options) if on is not None or (what is not None and not Path(what).exists()) else None
    measured = _lives(what) if what is not None and job is None else None
    times = {name: span(options[name], f"--{name}") for name in ("mtbf", "checkpoint", "restart", "every")}
    times = {name: times[name] or own for name, own in _known(job, measured, options).items()}
    _check(times, job, measured)
    given = (times["mtbf"], times["checkpoint"], times["restart"], times["every"])
    found = goodput(*given, in_restarts=measured is None)
    if as_json:
        answer: dict[str, Any] = msgspec.to_builtins(found)
        click.echo(msgspec.json.encode(answer | {"measured": measured} if measured else answer | _keys(job)))
    else:
        click.echo("\n".join([*_about(job), _page(found, measured)]))


def _job(what: str | None, on: str | None, options: dict[str, Any]) -> CheckpointedJob:
    """A model on a cluster: both belong together."""
    from foretell.oracle.goodput import job_of
    from foretell.oracle.request import read

    if what is None:
        raise BadInput("no model is given", where="MODEL", fix=ON_CLUSTER)
    if on is None:
        text = f"{what!r} is no file, and a model needs a cluster"
        raise BadInput(text, where="--on", fix=f"{ON_CLUSTER}; or the record of a run")
    words = {name: options[name] for name in ("plan", "seq", "trainer", "optimizer")}
    return job_of(read(model=what, on=on, **words))


def _known(job: CheckpointedJob | None, measured: RestartLog | None, options: dict[str, Any]) -> dict[str, float]:
    """Times that follow from a run or from a model on a cluster, where no option says otherwise."""
    from foretell.oracle.goodput import mtbf_of

    if measured is not None:
        return _of_run(measured)
    nothing: dict[str, float] = dict.fromkeys(("mtbf", "checkpoint", "restart", "every"), 0.0)
    for name in ("storage", "device_mtbf", "node_mtbf"):
        if job is None and options[name] is not None:
            option = f"--{name.replace('_', '-')}"
            raise BadInput(f"{option} is of a model on a cluster", where=option, fix=ON_CLUSTER)
    if job is None:
        return nothing
    rate = quantity.parse(options["storage"], "bandwidth", "--storage") if options["storage"] is not None else 0.0
    device, node = (span(options[name], f"--{name.replace('_', '-')}") for name in ("device_mtbf", "node_mtbf"))
    return nothing | {"mtbf": mtbf_of(job, device, node), "checkpoint": job.checkpoint_bytes / rate if rate else 0.0}


def _check(times: dict[str, float], job: CheckpointedJob | None, measured: RestartLog | None) -> None:
    """Both times that the formulas need are known."""
    if measured is not None and not measured.checkpoints and not times["checkpoint"]:
        what = "the run wrote no checkpoint, so how long one takes is not known"
        raise BadInput(what, where="--checkpoint", fix="--checkpoint 40s, or a run with a smaller --checkpoint-every")
    if measured is not None and not times["mtbf"]:
        raise BadInput(
            "the run had no failure, so its mean time between failures is not known", where="--mtbf", fix="--mtbf 3h"
        )
    others = {"mtbf": ("--device-mtbf", "50000h"), "checkpoint": ("--storage", "'20 GB/s'")}
    for name, (option, example) in others.items():
        if not times[name] and job is not None:
            what = f"nothing says the {name} of {job.model} on {job.cluster}"
            raise BadInput(what, where=f"--{name}, {option}", fix=f"{option} {example}")
        if not times[name]:
            raise BadInput(f"--{name} is missing", where=f"--{name}", fix=EXAMPLE)


def _keys(job: CheckpointedJob | None) -> dict[str, Any]:
    return {"job": job} if job is not None else {}


def _about(job: CheckpointedJob | None) -> list[str]:
    """Whose failures and checkpoints they are."""
    if job is None:
        return []
    lines = [
        ("model", fit(job.model, WIDTH - 14)),
        ("on", f"{job.ranks:,} devices of {job.cluster}, {job.nodes:,} {'node' if job.nodes == 1 else 'nodes'}"),
        ("checkpoint", f"{show_bytes(job.checkpoint_bytes)}: weights, master copies and optimizer states"),
    ]
    return [folded(f"{name:<14}{text}", 14) for name, text in lines]


def _lives(record: str) -> RestartLog:
    from foretell.cli.named_record import read_named
    from foretell.runtime.comparison import ran

    found = ran(read_named(Path(record)), record).measured.lives
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
