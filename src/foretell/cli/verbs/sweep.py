"""foretell sweep: many questions at once, models x clusters x batches x trainers."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from foretell.cli import several
from foretell.cli.main import NOTHING_FITS
from foretell.cli.notes import tell_notes
from foretell.cli.request_options import CALIBRATION, SEARCH, STACK, with_options
from foretell.cli.stopping import INTERRUPTED
from foretell.errors import BadInput, ForetellError

if TYPE_CHECKING:
    from foretell.sweeping.cell import SweepCell
    from foretell.sweeping.sweep import Sweep

EXAMPLE = "foretell sweep --model llama3-8b,llama3-70b --on 8xh100,64xh100 --batch 64,256 --out my-sweep"

TABLES = (".csv", ".parquet", ".arrow")


@click.command("sweep", short_help="Models x clusters x batches x trainers, at once.")
@click.option("--model", "models", multiple=True, metavar="NAMES", help="Models: gpt2,llama3-8b (may be repeated).")
@click.option("--on", "clusters", multiple=True, metavar="CLUSTERS", help="Clusters: 8xh100,64xh100.")
@click.option("--batch", "batches", metavar="NUMBERS", help="Global batches: 32,64 or 32..256, doubling.")
@click.option("--seq", "seqs", metavar="NUMBERS", help="Sequence lengths: 2048,8192 (the models' own).")
@click.option("--trainer", "trainers", multiple=True, metavar="NAMES", help="Training frameworks (pytorch).")
@click.option("--precision", "precisions", multiple=True, metavar="NAMES", help="bf16,fp8 (bf16 if the device has it).")
@click.option("--plan", "plans", multiple=True, metavar="TEXT", help="Predict this plan, do not search; repeatable.")
@click.option("--ask", metavar="WORD", default="", help="What of each cell: plan, predict, run (predict with --plan).")
@click.option("--steps", type=click.IntRange(min=1), metavar="N", help="Of a run to measure (20), or of a trial.")
@click.option("--trials", type=click.IntRange(min=1), metavar="N", help="Lay out N trials of each model on --gpus.")
@click.option("--gpus", type=click.IntRange(min=1), metavar="N", help="With --trials: GPUs of the pool.")
@click.option("--optimizer", metavar="NAME", default="", help="The optimizer (the trainer's).")
@with_options(*SEARCH, CALIBRATION, STACK)
@click.option("--out", metavar="FOLDER", help="Keep answers here; the same command resumes.")
@click.option("--table", metavar="FILE", help="Write the table: sweep.csv, sweep.parquet.")
@click.option("--jobs", type=int, default=0, metavar="N", help="Processes (one for each core).")
@click.option("--engine", metavar="NAME", default="processes", help="processes, or ray (processes).")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(as_json: bool, out: str | None, table: str | None, jobs: int, engine: str, **options: Any) -> None:
    """Many questions at once: each model on each cluster with each batch.

    Without --plan each cell is a search, as by foretell plan; with it, each plan is
    predicted. A cell without an answer has its reason. Ctrl-C prints the lines so far;
    with --out the same command resumes.
    """
    from foretell.cli.progress import Progress
    from foretell.cli.sweep_pages import page
    from foretell.cli.trial_pages import layout_page
    from foretell.sweeping import tables
    from foretell.sweeping.cell import OK
    from foretell.sweeping.sweep import sweep

    folder, table = _places(out, table)
    cells = _cells(options)
    progress = Progress()
    try:
        found = sweep(cells, folder, engine, jobs, progress.cells)
    finally:
        progress.end()
    if table is not None:
        tables.write(found, table)
    found = msgspec.structs.replace(found, notes=(*_notes(cells, options["calibration"]), *found.notes))
    if options["trials"] and found.complete and any(one.status == OK for one in found.rows):
        layout = found.trials(options["trials"], options["steps"], options["gpus"])
        found = msgspec.structs.replace(found, layout=layout)
    if as_json:
        click.echo(msgspec.json.encode(found))
    else:
        click.echo(page(found))
        if found.layout is not None:
            click.echo(f"\n{layout_page(found.layout)}")
        tell_notes(found.notes)
    if not found.complete:
        tell_notes([_until_then(found, out)])
        raise click.exceptions.Exit(INTERRUPTED)
    if not any(one.status == OK for one in found.rows):
        raise click.exceptions.Exit(NOTHING_FITS)


def _until_then(found: Sweep, out: str | None) -> str:
    """What was saved of a sweep that was interrupted."""
    done = f"{found.kept + found.answered:,} of {len(found.rows):,} cells are answered"
    return f"{done} and kept in {out}: the same command goes on" if out else f"{done}; --out FOLDER would keep them"


def _places(out: str | None, table: str | None) -> tuple[Path | None, str | None]:
    """Where answers are kept and where the table goes; a table for --out keeps its answers beside it."""
    from foretell.records.tables import writable

    if out is not None and Path(out).suffix in TABLES:
        if table is not None:
            raise BadInput("two tables", where="--out, --table", fix="a folder for --out")
        out, table = f"{out}.answers", out
    if table is not None:
        writable(table)
    if out is None:
        return None, table
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise BadInput(f"{out} is no folder: {problem.strerror}", where="--out", fix="another name") from None
    return folder, table


def _cells(options: dict[str, Any]) -> list[SweepCell]:
    from foretell.sweeping import trials
    from foretell.sweeping.sweep import Grid

    for name, option in (("models", "--model"), ("clusters", "--on"), ("batches", "--batch")):
        if not options[name]:
            here = option == "--on" and options["ask"] == "run"
            raise BadInput(f"no {name} are given", where=option, fix="--on this-machine" if here else EXAMPLE)
    if not all(plan.strip() for plan in options["plans"]):
        raise BadInput("a plan is blank", where="--plan", fix="--plan 'dp8 +bf16'; one rank alone is dp1")
    grid = Grid(
        models=several.models(options["models"]),
        clusters=several.clusters(options["clusters"]),
        batches=several.numbers(options["batches"], "--batch", "batches", "32,64 or 32..256"),
        trainers=_named(options["trainers"], "--trainer") or ["pytorch"],
        seqs=_sequences(options["seqs"]),
        precisions=_named(options["precisions"], "--precision") or [""],
        plans=[plan.strip() for plan in options["plans"]],
        ask=options["ask"],
    )
    ran = options["ask"] == "run"
    if options["steps"] is not None and not (ran or options["trials"]):
        raise BadInput("--steps are of runs or trials", where="--steps", fix="--ask run, or --trials 64 --gpus 16")
    if options["trials"] and not (options["steps"] and options["gpus"]):
        fix = "--trials 64 --steps 2000 --gpus 16"
        raise BadInput("trials need their steps and a pool of GPUs", where="--trials", fix=fix)
    if options["trials"]:
        trials.pool_device(grid.clusters)
    if options["gpus"] and not options["trials"]:
        raise BadInput("--gpus is the pool of many trials", where="--gpus", fix="--trials 64 --steps 2000, or --on")
    alike: dict[str, Any] = {"steps": (options["steps"] or 0) if ran else 0}
    alike |= {name: options[name] for name in ("optimizer", "only", "without", "also", "calibration", "stack")}
    return grid.cells(**alike, fixed=options["fix"].strip(), max_memory=options["max_memory"] or "")


def _notes(cells: Sequence[SweepCell], named: str) -> list[str]:
    """Calibrations that were picked up without being named, and those that could not be."""
    from foretell.hardware import catalog
    from foretell.oracle.calibrations import NONE, chosen

    if named == NONE:
        return []
    given = str(Path(named).absolute()) if named else ""
    notes: dict[str, None] = {}
    for text in dict.fromkeys(cell.cluster for cell in cells if cell.calibration != given):
        with contextlib.suppress(ForetellError):  # its cells say so
            notes |= dict.fromkeys(chosen(catalog.cluster(text)).notes)
    return list(notes)


def _named(texts: Sequence[str], where: str) -> list[str]:
    found = several.words(texts)
    if texts and not found:
        raise BadInput(f"{where} names nothing", where=where, fix=EXAMPLE)
    return found


def _sequences(text: str | None) -> list[int]:
    return several.numbers(text, "--seq", "sequences", "2048,8192") if text is not None else [0]
