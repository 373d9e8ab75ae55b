"""foretell bench: frameworks and strategies side by side."""

from __future__ import annotations

import math
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from foretell.cli import several
from foretell.cli.bench_hosts import conducting, seated, spread
from foretell.cli.bench_report import REPORT, ReportFiles, judged, judged_page, reported, study_files
from foretell.cli.measuring import needs_torch
from foretell.cli.stopping import telling

if TYPE_CHECKING:
    from foretell.bench.question import BenchQuestion
    from foretell.bench.study import BenchStudy

EXAMPLE = "foretell bench --engine ddp,fsdp2-zero3 --pair image --ranks 1,2 --out my-study"


@click.command("bench", short_help="Frameworks and strategies side by side.")
@click.option("--quick", is_flag=True, help="All engines that run here, two small tasks, two ranks, up to three seeds.")
@click.option("--engine", "engines", multiple=True, metavar="NAMES", help="Engines: ddp,gpipe (all; see --list).")
@click.option("--pair", "pairs", multiple=True, metavar="NAMES", help="image, language; vgg16, gpt2-medium (GPUs).")
@click.option("--ranks", metavar="NUMBERS", default="", help="Numbers of ranks: 1,2,4 or 1..8, doubling (1..cores).")
@click.option("--seeds", type=int, default=1, metavar="N", help="Seeds of each row: 0 to N-1 (1).")
@click.option("--model", default="", metavar="MODEL", help="Another model than the pair's.")
@click.option("--task", default="", metavar="NAME", help="Other data: images:FOLDER, tokens:FILE, synthetic.")
@click.option("--batch", type=int, default=0, metavar="N", help="Samples of a step for each rank (the pair's).")
@click.option("--batch-rule", default="survey", metavar="NAME", help="survey: --batch for each rank; fixed: for all.")
@click.option("--optimizer", default="", metavar="NAME", help="sgd, momentum, adam, adamw, lars, lamb (the pair's).")
@click.option("--rate", type=float, default=0.0, metavar="X", help="Learning rate, for one rank's batch.")
@click.option("--scale-rate", "scaled", is_flag=True, help="The rate grows with the batch.")
@click.option("--warmup", type=int, default=0, metavar="N", help="Warm-up steps of the learning rate.")
@click.option("--steps", type=int, default=0, metavar="N", help="Steps to measure (the pair's).")
@click.option("--look", type=int, default=-1, metavar="N", help="Steps between validations; 0: none.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default=None, help="Where ranks compute (the pair's).")
@click.option("--threads", type=int, default=1, metavar="N", help="Of each rank on a CPU (1).")
@spread
@click.option("--out", metavar="FOLDER", default="", help="Folder of the study; the same command resumes (bench).")
@click.option("--within", type=float, default=None, metavar="MINUTES", help="Start no row after this (--quick: 9.5).")
@click.option("--again", is_flag=True, help="Measure rows again that failed.")
@click.option("--show", metavar="FOLDER", help="A study that is there: nothing is run.")
@click.option("--install", metavar="ENGINE", help="Install an engine in an environment of its own.")
@click.option("--list", "listed", is_flag=True, help="The engines, and which are installed.")
@click.option("--survey", is_flag=True, help="The survey of frameworks: its own numbers beside their prediction.")
@reported
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(
    as_json: bool,
    show: str | None,
    install: str | None,
    listed: bool,
    survey: bool,
    html: str,
    figures: str,
    **options: Any,
) -> None:
    """Train the same model on the same data under every engine, and compare.

    Each row is an engine, a pair of model and task, a number of ranks and a seed:
    time, phases, memory, and how well it learnt, next to what was predicted. What
    cannot run is a row with its reason. Started again, it resumes.
    """
    files = ReportFiles(html, figures)
    runs = not (survey or listed or install is not None or show is not None)
    files.check(_folder(options) if runs else None)
    if survey:
        from foretell.replicas.survey.text import tell_survey

        tell_survey(as_json, files)
    elif install is not None:
        click.echo(_installed(install, as_json))
    elif listed:
        click.echo(_listed(as_json))
    elif show is not None:
        _tell(Path(show), as_json, files)
    elif not seated(options):
        _compare(options, as_json, files)


def _compare(options: dict[str, Any], as_json: bool, files: ReportFiles) -> None:
    from foretell.bench.matrix import QUICK_MINUTES, compare
    from foretell.cli.main import NOTHING_FITS
    from foretell.cli.progress import Progress

    folder = _folder(options)
    minutes = options["within"] or (QUICK_MINUTES if options["quick"] else math.inf)
    progress = Progress()
    with conducting(options) as by:
        questions = _questions(options, by.where.ranks)
        needs_torch("comparing frameworks", "bench")
        try:
            with telling(lambda: _until_then(folder, len(questions))):
                rows = list(compare(questions, folder, _command(), progress.rows, options["again"], 60.0 * minutes, by))
        finally:
            progress.end()
    _tell(folder, as_json, files._replace(html=files.html or str(folder / REPORT)))
    if len(rows) < len(questions):
        left = len(questions) - len(rows)
        these = "1 row is" if left == 1 else f"{left} rows are"
        print(f"note: {these} left after {minutes:g} minutes; the same command goes on", file=sys.stderr)
    if not any(row.ok for row in rows):
        raise click.exceptions.Exit(NOTHING_FITS)


def _until_then(folder: Path, rows: int) -> tuple[str, str]:
    """What was saved of a comparison that is interrupted, and how to go on."""
    from foretell.bench.study import kept

    return f"{len(kept(folder)):,} of {rows:,} rows are kept in {folder}", "the same command, which goes on from there"


def _folder(options: dict[str, Any]) -> Path:
    """Where the study lies."""
    return Path(options["out"] or ("bench-quick" if options["quick"] else "bench"))


def _command() -> str:
    """What a person would type to get this again."""
    return shlex.join(["foretell", *sys.argv[1:]])


def _questions(options: dict[str, Any], seats: int = 0) -> list[BenchQuestion]:
    """All of them, for this machine or for so many ranks that were started already."""
    from foretell.bench import engine, matrix
    from foretell.cli import bench_checks
    from foretell.hardware import this_machine

    bench_checks.check(options)
    if options["quick"]:
        return matrix.quick()
    alike = {name: options[name] for name in ("model", "task", "batch", "batch_rule", "optimizer", "rate", "scaled")}
    alike |= {name: options[name] for name in ("warmup", "steps", "look", "threads")}
    cores = max(1, this_machine.processor().ranks_per_node)
    ranks = several.numbers(options["ranks"] or f"1..{seats or cores}", "--ranks", "ranks", "1,2,4 or 1..8")
    bench_checks.check_ranks(ranks, cores, seats)
    questions = matrix.BenchMatrix(
        engines=several.words(options["engines"]) or engine.names(),
        pairs=several.words(options["pairs"]) or ["image", "language"],
        ranks=ranks,
        seeds=range(options["seeds"]),
        alike=alike | {"device": options["device"] or ""},
    ).questions()
    bench_checks.check_names(options, questions)
    return questions


def _tell(folder: Path, as_json: bool, files: ReportFiles) -> None:
    from foretell.bench.study import read
    from foretell.cli.bench_pages import page

    found = read(folder)
    names = study_files(found, files)
    if as_json:
        click.echo(_json(found, folder, names))
        return
    counted = f"{len(found.rows)} row{'s' * (len(found.rows) != 1)} in {folder}"
    parts = (page(found), judged_page(found.rows), "\n".join([counted, *names]))
    click.echo("\n\n".join(filter(None, parts)))


def _json(found: BenchStudy, folder: Path, names: list[str]) -> bytes:
    from foretell.bench.reading import lines
    from foretell.bench.row import told

    answer = {"about": found.about, "lines": lines(found.rows), "rows": [told(row) for row in found.rows]}
    besides = {"unread": found.unread, "folder": str(folder), "files": names}
    return msgspec.json.encode({**answer, **judged(found.rows), **besides})


def _installed(name: str, as_json: bool) -> str:
    from foretell.bench import environments
    from foretell.bench.engine import engine

    asked = engine(name)
    home = environments.install(asked)
    if as_json:
        return msgspec.json.encode({"package": asked.package, **home._asdict()}).decode()
    return f"{asked.package} {home.version} is installed in {environments.folder(asked)}"


def _listed(as_json: bool) -> str:
    from foretell.cli.bench_pages import listing
    from foretell.cli.table import table

    found = listing()
    if as_json:
        return msgspec.json.encode({"engines": found}).decode()
    rows = [[one["engine"], one["installed"] or "absent", one["title"]] for one in found]
    return table(("engine", "version", "what it is"), rows, left=(0, 1, 2))
