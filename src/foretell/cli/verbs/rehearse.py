"""foretell rehearse: one rank of a large run for real on this machine, the others as they are priced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from foretell.cli.measuring import checked_threads, needs_torch
from foretell.cli.request_options import CALIBRATION, ONE_PLAN, on_cluster, taken, under_plan, with_options
from foretell.errors import BadInput

if TYPE_CHECKING:
    from foretell.oracle.request import Request
    from foretell.runtime.assignment import Assignment
    from foretell.runtime.comparison import Comparison
    from foretell.runtime.measure import Measurement
    from foretell.runtime.rehearsal import Rehearsed

EXAMPLE = "foretell rehearse gpt2 --on 64xh100 --plan 'dp64:zero3' --batch 64"


def numbers(context: click.Context, option: click.Parameter, text: str) -> tuple[int, ...]:
    """Whole numbers with commas between them."""
    try:
        return tuple(int(word) for word in text.split(",") if word.strip())
    except ValueError:
        said = option.opts[0]
        raise BadInput(f"{text!r} are no numbers", where=said, fix=f"{said} 0,7") from None


@click.command("rehearse", short_help="One rank of a large run for real, on this machine.")
@with_options(*ONE_PLAN, CALIBRATION)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--rank", "ranks", default="", callback=numbers, metavar="N,N", help="Ranks to rehearse (each kind).")
@click.option(
    "--messages", type=click.Choice(["priced", "none"]), default="priced", help="How long messages take (priced)."
)
@click.option("--depths", default="", callback=numbers, metavar="N,N", help="Layers of two models to extend from.")
@click.option("--steps", type=click.IntRange(min=1), default=10, metavar="N", help="Steps to measure (10).")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), help="Where the rank computes (a GPU, if there is one).")
@click.option("--threads", type=int, default=0, metavar="N", help="Threads of the rank (1; with a GPU, all cores).")
@click.option("--timeout", type=float, default=900.0, metavar="SECONDS", help="Stop after this long (900).")
@click.option("--patience", type=float, default=300.0, metavar="SECONDS", help="Give up a hang after this long (300).")
@click.option("--records", default="", metavar="FOLDER", help="Where the record is written (your records).")
@click.option("--script", is_flag=True, help="MODEL is a training script, started unchanged: -- train.py ARGS.")
@click.option("--ranks", "world", type=int, metavar="N", help="With --script: ranks of the run (the cluster's).")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(**options: Any) -> None:
    """Run one rank of each kind of a plan here; messages take as long as they
    are priced on the cluster, and move nothing.

    With --script an unmodified training script runs as one rank of the
    cluster: foretell rehearse --script --on 64xh100 -- train.py --lr 1e-4
    """
    needs_torch("a rehearsal", "run")
    arguments: tuple[str, ...] = options.pop("arguments")
    if options["script"]:
        from foretell.cli.rehearsed_scripts import rehearse_script

        rehearse_script(options, arguments)
        return
    if options["world"] is not None:
        what = f"--ranks {options['world']} without --script: a plan says how many ranks there are"
        raise BadInput(what, where="--ranks", fix="without --ranks, or another --plan")
    if arguments:
        what = f"{' '.join(arguments)} after the model"
        raise BadInput(what, where="MODEL", fix="one model; of a script: --script -- train.py ARGS")
    request = under_plan(on_cluster(taken(options), EXAMPLE))
    _rehearse(request, options)


def _rehearse(request: Request, options: dict[str, Any]) -> None:
    from foretell.runtime import launch
    from foretell.runtime.rehearsal import kinds, rehearsed

    assignment = _assignment(request, options)
    ranks = options["ranks"] or kinds(assignment.setting)
    with launch.Ranks() as started:
        seconds = options["timeout"]
        found = rehearsed(assignment, ranks, seconds, lambda one: started.run(one, seconds)[0])
    measured = _recorded(found, options["records"])
    _tell(found, measured, _compared(measured), options["as_json"])


def _assignment(request: Request, options: dict[str, Any]) -> Assignment:
    from foretell.hardware import this_machine
    from foretell.oracle.resolve import resolve
    from foretell.runtime.assignment import Assignment, Rehearsal

    asked = resolve(request)
    assert request.cluster is not None
    plan, cluster = asked.setting.plan, request.cluster.text
    if options["device"] == "cuda" and not this_machine.gpus():
        raise BadInput("this machine has no GPU that torch can use", where="--device", fix="--device cpu")
    checked_threads(options["threads"])
    calibration, first = request.measured.calibration, (options["ranks"] or (0,))[0]
    return Assignment(
        model=asked.request.model,
        plan=str(plan),
        batch=asked.setting.job.batch,
        seq=asked.request.seq,
        trainer=asked.request.trainer,
        optimizer=asked.setting.job.optimizer,
        device=options["device"] or ("cuda" if this_machine.gpus() else "cpu"),
        rehearsal=Rehearsal(first, cluster, options["messages"] == "priced", calibration, options["depths"]),
        **{name: options[name] for name in ("steps", "threads", "patience")},
    )


def _recorded(found: Rehearsed, folder: str) -> Measurement:
    from foretell.runtime.recording import recorded

    assert found.assignment.rehearsal is not None
    return recorded(found.assignment, found.reports, folder, found.assignment.rehearsal.cluster)


def _compared(measured: Measurement) -> Comparison:
    from pathlib import Path

    from foretell.records.store import read as read_record
    from foretell.runtime.comparison import of_record

    return of_record(read_record(Path(measured.record)), measured.record)


def _tell(found: Rehearsed, measured: Measurement, compared: Comparison, as_json: bool) -> None:
    import msgspec

    from foretell.cli.rehearse_pages import page
    from foretell.runtime.rehearsal import UNSEEN

    if not as_json:
        click.echo(page(found, measured, compared))
        return
    answer = msgspec.to_builtins(measured) | {"comparison": msgspec.to_builtins(compared)}
    click.echo(msgspec.json.encode({**answer, "unseen": UNSEEN, "why": found.why}))
