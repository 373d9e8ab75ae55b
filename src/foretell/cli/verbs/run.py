"""foretell run: train under a plan for real, and measure."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from foretell.cli.disturbance_options import disturbed
from foretell.cli.measuring import checked_threads, needs_torch
from foretell.cli.notes import tell_notes
from foretell.cli.request_options import FORWARD, ONE_PLAN, asks, taken
from foretell.cli.run_pages import comparison_page, page
from foretell.cli.stopping import Stopped
from foretell.cli.training_options import span
from foretell.errors import BadInput

if TYPE_CHECKING:
    from foretell.hardware.disturbance import Disturbance
    from foretell.learning.tempo import Tempo
    from foretell.oracle.request import Request
    from foretell.oracle.resolve import Resolved
    from foretell.runtime.assignment import Assignment, Report, RunFailed
    from foretell.runtime.comparison import Comparison
    from foretell.runtime.measure import Measurement
    from foretell.runtime.place import RankPlace

EXAMPLE = "foretell run lenet --plan dp2 --batch 64 --steps 20"


@click.command("run", short_help="Train under a plan for real, and measure.")
@asks(*ONE_PLAN, FORWARD)
@disturbed
@click.option("--ranks", type=int, metavar="N", help="Ranks; a plan has its own number. Without a plan: dpN.")
@click.option("--method", default="", metavar="TEXT", help="As in simulate: easgd:tau=4, ssp:s=3+topk, dpsgd.")
@click.option("--steps", type=int, default=20, metavar="N", help="Steps to measure (20).")
@click.option("--task", default="synthetic", metavar="NAME", help="Data: synthetic, digits, text ... or file.py:data.")
@click.option("--skew", type=float, default=0.0, metavar="A", help="Each rank has its own mix of classes: 0.3.")
@click.option("--loss", default="", metavar="FILE:NAME", help="file.py:function of outputs and target.")
@click.option("--validate-every", type=int, default=0, metavar="N", help="Steps between validations.")
@click.option("--noise-every", type=int, default=0, metavar="N", help="Steps between measurements of gradient noise.")
@click.option("--rate", type=float, default=0.0, metavar="X", help="Learning rate (the optimizer's usual one).")
@click.option("--rate-batch", type=int, default=0, metavar="N", help="The batch --rate is for; it grows with --batch.")
@click.option("--warmup", type=int, default=0, metavar="N", help="Warm-up steps of the learning rate (0).")
@click.option("--seed", type=int, default=0, metavar="N", help="Of weights and data (0).")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), help="Where ranks compute (GPUs, if there are enough).")
@click.option("--threads", type=int, metavar="N", help="Threads of each rank (1; with a GPU, its part of the cores).")
@click.option("--timeout", type=float, default=900.0, metavar="SECONDS", help="Stop the ranks after this long (900).")
@click.option("--patience", type=float, default=300.0, metavar="SECONDS", help="Give up a hang after this long (300).")
@click.option("--collectives", default="", metavar="NAME", help="An algorithm of our own: ring, ps:2, rabenseifner.")
@click.option(
    "--checkpoint", "checkpoints", default="", metavar="FOLDER", help="Write checkpoints here, and resume from them."
)
@click.option(
    "--checkpoint-every", type=click.IntRange(min=1), default=10, metavar="N", help="Steps between checkpoints (10)."
)
@click.option("--restarts", type=click.IntRange(min=0), default=0, metavar="N", help="Restarts after a lost rank (0).")
@click.option("--fail-at", default="", metavar="N,N", help="Fault drill: a rank dies before these steps.")
@click.option("--fail-every", metavar="TIME", help="Fault drill: ranks die at random, on average every 30s.")
@click.option("--waits", is_flag=True, help="Ranks sleep instead of computing: more ranks than cores.")
@click.option("--waits-predicted", is_flag=True, help="The same, for the predicted time: tests communication only.")
@click.option("--pace", metavar="TIME", help="Emulated time of a gradient: 40ms (ps, local, ring, gossip).")
@click.option("--jitter", type=float, metavar="S", default=0.0, help="With --pace: spread of these times, 0.2.")
@click.option("--stragglers", metavar="PxF", default="", help="With --pace: a fraction P takes F times as long, 0.1x5.")
@click.option("--nnodes", metavar="N", help="Number of nodes, each running this command; for torchrun.")
@click.option("--rendezvous", metavar="HOST:PORT", help="Rendezvous of the nodes; for torchrun.")
@click.option("--records", default="", metavar="FOLDER", help="Where the record is written (your records).")
@click.option("--calibration", metavar="FILE", default="", help="For --compare: from `foretell calibrate`.")
@click.option("--trace", metavar="FILE", help="One more step of all ranks, next to the predicted one, for Perfetto.")
@click.option("--dry-run", is_flag=True, help="One rank without its peers: checks, does not measure.")
@click.option("--compare", "with_comparison", is_flag=True, help="Predict the same, and subtract.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(request: Request, **options: Any) -> None:
    """Train MODEL under a plan, on ranks of this machine, and measure.

    Under torchrun or srun this process is one of the ranks. With --nnodes it
    starts torchrun on this node, which waits for the others at --rendezvous.
    """
    from foretell.oracle.resolve import resolve, unmeasured

    request = _with_plan(request, options["ranks"], options["method"])
    asked = resolve(unmeasured(request.changed(cluster=None)))
    _possible(options["disturbance"], asked.setting.plan.ranks)
    assignment = _assignment(asked, options)
    needs_torch("training", "run")
    if options["dry_run"]:
        click.echo(_dry(assignment, options["timeout"], options["as_json"]))
    else:
        _run(request, asked, assignment, options)


def ranks_of(words: Sequence[str]) -> int:
    """How many ranks a run that is typed like this has, before anything of it is done."""
    options = command.make_context("run", list(words)).params
    plan = _with_plan(taken(options), options["ranks"], options["method"]).plan
    return plan.ranks if plan is not None else 0


def _assignment(asked: Resolved, options: dict[str, Any]) -> Assignment:
    from foretell.learning.skew import skew, workers_of
    from foretell.runtime.assignment import Assignment

    for name in ("steps", "threads"):
        if options[name] is not None:
            _at_least_one(f"--{name}", options[name])
    options["threads"] = checked_threads(options["threads"] or 0)
    for name in ("validate_every", "noise_every", "checkpoints", "method") if asked.request.forward else ():
        if options[name]:
            option = f"--{name.replace('_', '-').removesuffix('s')}"
            raise BadInput(f"{option}, and nothing is trained", where=f"{option}, --forward", fix="one of the two")
    for name in ("validate_every", "noise_every"):
        if options[name]:
            _at_least_one(f"--{name.replace('_', '-')}", options[name])
    if not math.isfinite(options["rate"]):
        raise BadInput(f"--rate {options['rate']}", where="--rate", fix="a number: --rate 0.01")
    for name in ("rate_batch", "warmup"):
        if options[name] < 0:
            option = f"--{name.replace('_', '-')}"
            raise BadInput(f"{option} {options[name]}", where=option, fix="0 or more")
    names = ("rate", "rate_batch", "warmup", "task", "loss", "validate_every", "steps", "seed", "threads", "patience")
    names = (*names, "collectives", "method", "noise_every", "skew")
    names = (*names, "disturbance", "checkpoints", "checkpoint_every", "restarts", "waits")
    if options["skew"]:
        skew(workers_of(asked.setting.plan), 2, options["skew"], 0)  # refused before ranks start
    return Assignment(
        model=asked.request.model,
        plan=str(asked.setting.plan),
        batch=asked.setting.job.batch,
        seq=asked.request.seq,
        trainer=asked.request.trainer,
        optimizer=asked.setting.job.optimizer,
        forward=asked.request.forward,
        device=_chosen(options["device"], asked.setting.plan.ranks),
        dry=options["dry_run"],
        traced=options["trace"] is not None,
        fail_at=_rehearsed(options),
        fail_every=span(options["fail_every"], "--fail-every"),
        tempo=_tempo(options, asked),
        **{name: options[name] for name in names},
    )


def _tempo(options: dict[str, Any], asked: Resolved) -> Tempo:
    """How long gradients are to take, where each rank makes its own whenever it can."""
    from foretell.learning.tempo import FREE, tempo
    from foretell.runtime.methods.choice import axis_of

    found = tempo(span(options["pace"], "--pace"), options["jitter"], options["stragglers"])
    if found != FREE and axis_of(asked.setting.plan) is None:
        what = f"{asked.setting.plan}: all ranks step together"
        raise BadInput(what, where="--pace", fix="--slow-rank 1:2x, or a plan with ps, local, ring or gossip")
    return found


def _rehearsed(options: dict[str, Any]) -> tuple[int, ...]:
    """The steps before which a rank is to die. Whoever dies leaves nothing, unless there are checkpoints."""
    wanted = [name for name in ("restarts", "fail_at", "fail_every") if options[name]]
    if wanted and not options["checkpoints"]:
        option = f"--{wanted[0].replace('_', '-')}"
        raise BadInput(f"{option}, and no checkpoint to go on from", where=option, fix="--checkpoint FOLDER too")
    try:
        return tuple(int(word) for word in options["fail_at"].split(",") if word.strip())
    except ValueError:
        raise BadInput(f"{options['fail_at']!r} are no steps", where="--fail-at", fix="--fail-at 7,15") from None


def _possible(wanted: Disturbance, ranks: int) -> None:
    """Refuse to disturb ranks that are not there, and links that are none."""
    from foretell.runtime.hosts import hosts

    wanted.check(ranks)
    if (wanted.links or wanted.traffic) and not hosts():
        what = "ranks of one machine have no links between them that could be disturbed"
        raise BadInput(what, where="--slow-link, --traffic", fix="foretell lab run, or foretell predict")


def _chosen(device: str | None, ranks: int) -> str:
    """GPUs, where this machine has one for each rank that it will run; gloo ranks may share one that is asked for."""
    from foretell.hardware import this_machine
    from foretell.runtime.place import place

    here = place()
    if device == "cuda" and not this_machine.gpus():
        raise BadInput("this machine has no GPU that torch can use", where="--device", fix="--device cpu")
    return device or ("cuda" if this_machine.gpus() >= (here.here if here else ranks) else "cpu")


def _run(request: Request, asked: Resolved, assignment: Assignment, options: dict[str, Any]) -> None:
    """Train on ranks that are started here, or as one of those that somebody else started."""
    from foretell.runtime import launch
    from foretell.runtime.assignment import RunFailed, RunStopped
    from foretell.runtime.place import place

    cluster, calibration = request.cluster.text if request.cluster is not None else "", request.measured.calibration
    here = place()
    if options["nnodes"] is not None and here is None:
        ranks, words = asked.setting.plan.ranks, sys.argv[1:]
        launch.torchrun(ranks, options["nnodes"], options["rendezvous"], words, options["restarts"])
    if options["with_comparison"] or options["trace"] is not None or options["waits_predicted"]:
        assignment = _foreseen(assignment, cluster, calibration, options["waits_predicted"])
    try:
        reports = _reports(assignment, here, options["timeout"])
    except RunFailed as problem:
        raise _with_record(problem, assignment, options["records"], cluster) from None
    except RunStopped as stop:
        raise _until_then(stop.reports, assignment, options["records"], cluster) from None
    if reports:
        found = _kept(assignment, reports, options, cluster)
        compared = _compared(found, calibration) if options["with_comparison"] else None
        if options["trace"] is not None:
            _traced(reports, found, options["trace"], calibration)
        _tell(found, compared, options["as_json"])
        tell_notes(asked.notes if not options["as_json"] else ())
    if here is not None:
        launch.leave()


def _foreseen(assignment: Assignment, cluster: str, calibration: str, waits: bool) -> Assignment:
    """The run, with waits as they are predicted where these are wanted. What cannot be told is not run first."""
    from foretell.hardware import catalog
    from foretell.runtime.comparison import computing, foreseen
    from foretell.runtime.recording import HERE

    where = catalog.cluster(cluster or HERE)
    foreseen(assignment, where, calibration)
    if not waits:
        return assignment
    computes = computing(assignment, where, calibration)
    return msgspec.structs.replace(assignment, waits=True, computes=computes)


def _with_record(problem: RunFailed, assignment: Assignment, folder: str, cluster: str) -> BadInput:
    """The failure with the file that has what was measured until then, if anything was."""
    if not problem.reports:
        return problem
    what = f"{problem.what}\n{_recorded(assignment, problem.reports, folder, cluster, str(problem))}"
    return BadInput(what, where=problem.where, fix=problem.fix)


def _until_then(reports: tuple[Report, ...], assignment: Assignment, folder: str, cluster: str) -> Stopped:
    """What was saved of a run that is interrupted, and how to go on."""
    from foretell.runtime.restart_log import last_checkpoint

    saved = _recorded(assignment, reports, folder, cluster, "interrupted") if reports else "no step was measured yet"
    step = last_checkpoint(Path(assignment.checkpoints)) if assignment.checkpoints else None
    if step is None:
        return Stopped(saved, "" if assignment.checkpoints else "--checkpoint FOLDER: then the same command goes on")
    return Stopped(
        f"{saved}; step {step} is kept in {assignment.checkpoints}", "the same command, which goes on from it"
    )


def _recorded(assignment: Assignment, reports: tuple[Report, ...], folder: str, cluster: str, why: str) -> str:
    """What was measured before a run ended early, in a file; a full disk is not to hide why it ended."""
    from foretell.runtime.recording import recorded

    try:
        where = recorded(assignment, reports, folder, cluster, why).record
    except BadInput as second:
        where = second.what
    return f"{len(reports[0].steps)} steps were measured until then: {where}"


def _with_plan(request: Request, ranks: int | None, method: str = "") -> Request:
    """A plan for the ranks that were named, and the ranks of the plan that was."""
    from foretell.plan.text import parse
    from foretell.runtime.methods.choice import carrier

    if request.plan is None:
        if ranks is None and method:
            what = f"--method {method} needs a number of ranks"
            raise BadInput(what, where="--ranks", fix=f"--method {method} --ranks 2")
        if ranks is None:
            raise BadInput("no plan is given", where="--plan", fix=EXAMPLE)
        _at_least_one("--ranks", ranks)
        return request.changed(plan=parse(carrier(method, ranks) if method else f"dp{ranks}"))
    own = request.plan.ranks
    if ranks not in (None, own):
        raise BadInput(f"--plan '{request.plan}' has {own} ranks, not {ranks}", where="--ranks", fix=f"--ranks {own}")
    return request


def _dry(assignment: Assignment, seconds: float, as_json: bool) -> str:
    """What rank 0 would say to the others, beside what the program says."""
    from foretell.cli.run_pages import dry_page
    from foretell.program.expand import expand
    from foretell.program.lower import lower
    from foretell.runtime import launch
    from foretell.runtime.comparison import traffic

    with launch.Ranks() as ranks:
        (report,) = ranks.run(assignment, seconds)
    setting = assignment.setting
    found = traffic(expand(lower(setting)), 0, report.collectives)
    if not as_json:
        return dry_page(assignment, setting.plan.ranks, report.collectives, found)
    answer = {"plan": assignment.plan, "ranks": setting.plan.ranks, "batch": assignment.batch, "dry_run": True}
    answer |= {"collectives": report.collectives, "unexpected": found.unexpected, "missing": found.missing}
    return msgspec.json.encode(answer).decode()


def _at_least_one(option: str, number: int) -> None:
    if number < 1:
        raise BadInput(f"{option} {number}", where=option, fix="1 or more")


def _reports(assignment: Assignment, here: RankPlace | None, seconds: float) -> tuple[Report, ...]:
    from foretell.runtime import launch

    if here is not None:
        return launch.join(assignment, here)
    with launch.Ranks() as ranks:
        return ranks.run(assignment, seconds)


def _kept(assignment: Assignment, reports: tuple[Report, ...], options: dict[str, Any], cluster: str) -> Measurement:
    """The measurement with its record. Where that cannot be written, what was measured is told all the same."""
    from foretell.runtime.recording import observed, recorded

    try:
        return recorded(assignment, reports, options["records"], cluster)
    except BadInput:
        _tell(observed(assignment, reports), None, options["as_json"])
        raise


def _traced(reports: tuple[Report, ...], found: Measurement, file: str, calibration: str) -> None:
    """The step that was watched and the one that is predicted, in one file."""
    from foretell.records.store import read as read_record
    from foretell.runtime.comparison import simulated
    from foretell.runtime.tracing import write_merged

    write_merged(reports, simulated(read_record(Path(found.record)), found.record, calibration), file)


def _compared(found: Measurement, calibration: str) -> Comparison:
    from foretell.records.store import read as read_record
    from foretell.runtime.comparison import of_record

    return of_record(read_record(Path(found.record)), found.record, calibration=calibration)


def _tell(found: Measurement, compared: Comparison | None, as_json: bool) -> None:
    if as_json:
        answer = msgspec.to_builtins(found)
        answer |= {"comparison": msgspec.to_builtins(compared)} if compared else {}
        click.echo(msgspec.json.encode(answer))
        return
    click.echo(page(found))
    if compared:
        click.echo(f"\n{comparison_page(compared)}")
