"""foretell plan: the best plan there is, of all that the search looks through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from foretell.cli.amounts import read_amount, read_price
from foretell.cli.main import NOTHING_FITS
from foretell.cli.notes import tell_notes
from foretell.cli.plan_answers import SearchOutcome, answers_of, notes_of, refuse, what_would_fit
from foretell.cli.plan_questions import batch_of, is_choice, limit_of, questions_of, run_of, today_of
from foretell.cli.progress import Progress
from foretell.cli.request_options import (
    BATCH_PER_RANK,
    CALIBRATION,
    EFFORT,
    FORWARD,
    MODEL,
    ON,
    OPTIMIZER,
    PRECISION,
    SEARCH,
    SEQ,
    STACK,
    TRAINER,
    with_options,
)

if TYPE_CHECKING:
    from foretell.cli.config_change import ConfigChange
    from foretell.cli.config_options import Today
    from foretell.oracle.planning import PlanningAnswer
    from foretell.oracle.training import TrainingRun


BESTS = ["time", "money", "memory", "gpus", "energy"]


@click.command("plan", short_help="The plan to run, the fastest one, and a smaller one.")
@with_options(
    MODEL,
    click.option("--from-config", metavar="FILE", help="What you run today: the best plan is told against it."),
    click.option("--out", metavar="FILE", help="With --from-config: write that file with the best plan instead."),
    ON,
    click.option("--batch", metavar="N", help="Samples of a step, or tokens: 4M; auto, or LOW..HIGH: the best."),
    click.option("--noise-scale", metavar="N", help="For --batch auto: '2e6 tokens', or a run's record."),
    BATCH_PER_RANK,
    SEQ,
    TRAINER,
    OPTIMIZER,
    PRECISION,
    FORWARD,
    *SEARCH,
    *EFFORT,
    CALIBRATION,
    STACK,
)
@click.option("--gpus", metavar="LOW..HIGH", help="A search for each number, doubling: 8..1024.")
@click.option("--by", type=click.Choice(BESTS), default="time", help="What is best (time).")
@click.option("--tokens", callback=read_amount, metavar="N", help="Also: days to train on this many tokens: 15T.")
@click.option("--samples", callback=read_amount, metavar="N", help="Also: days to train on this many samples.")
@click.option("--epochs", type=float, metavar="N", help="Go through these so often (1).")
@click.option("--price", callback=read_price, metavar="P", help="Of a device an hour: '$2'.")
@click.option("--deadline", metavar="TIME", help="The training ends within this time: 30d.")
@click.option("--all", "everything", is_flag=True, help="Also: the best of each mesh, the Pareto front, refusals.")
@click.option("--top", type=int, default=10, metavar="N", help="Number of plans to print with --all (10).")
@click.option("--table", metavar="FILE", help="Write every priced plan: plans.csv, plans.parquet.")
@click.option("--html", metavar="FILE", help="Write a report to look at: one file, with charts.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(as_json: bool, **options: Any) -> None:
    """The plan to run for MODEL on a cluster, of all that the trainer can run.

    Recommended: the simplest plan with head-room that is as fast as the fastest to 3 %.
    Fastest: the optimum of the space. Smaller: a plan with a quarter less memory.
    What cannot win by its lower bound is not priced (--exhaustive prices all). Ctrl-C, and
    --seconds, end with the best so far. The exit code is 1 if no plan fits or is in time.
    """
    from foretell.records.tables import writable

    if options["table"] is not None:
        writable(options["table"])
    today = today_of(options)
    run, progress = run_of(options), Progress()
    if is_choice(options):
        from foretell.cli.batch_choice import choose_batch

        choose_batch(options, run, progress, as_json)
        return
    found = _searched(options, run, progress)
    change = _change(today, found.best, options["out"]) if today and found.best else None
    _write(found, options["table"], options["html"])
    if as_json:
        click.echo(found.json(change))
    else:
        click.echo("\n\n".join([found.page(), *([change.page()] if change else [])]))
        tell_notes(notes_of(found.answers))
    if found.best is None:
        raise click.exceptions.Exit(NOTHING_FITS)


def _searched(options: dict[str, Any], run: TrainingRun, progress: Progress) -> SearchOutcome:
    """Search for each number of ranks; the best of all that are done in time."""
    from foretell.oracle.planning import best_of, by_memory
    from foretell.oracle.recommend import recommend
    from foretell.oracle.refinement import refine

    by, limit = options["by"], limit_of(options)
    answers = answers_of(questions_of(options, batch_of(options["batch"])), progress)
    answers = [one for one in answers if one.found.evaluated] or refuse(answers)
    if by == "memory":
        answers = [one._replace(found=by_memory(one.found)) for one in answers]
    elif by == "energy":
        from foretell.oracle.energy_choice import by_energy

        answers = [by_energy(one) for one in answers]
    else:
        answers = [recommend(refine(one)) for one in answers]
    spans = [_span(one, run) for one in answers]
    best = best_of([one for one, taken in zip(answers, spans, strict=True) if taken <= limit], by)
    ended = all(one.found.complete for one in answers)  # where not, what was not looked at may fit
    tried = [] if best or best_of(answers, by) or not ended else what_would_fit(answers, progress)
    return SearchOutcome(answers, best, tried, run, spans, limit, by, options["everything"])


def _span(answer: PlanningAnswer, run: TrainingRun) -> float:
    """Seconds that the best plan of an answer trains; none where no run is asked about."""
    best = answer.found.best
    training = answer.predicted(best.value, run).training if best is not None and run.asked else None
    return training.seconds if training is not None else 0.0


def _change(found: Today, best: PlanningAnswer, out: str | None) -> ConfigChange:
    from foretell.cli.config_change import changed

    return changed(found, best, out)


def _write(found: SearchOutcome, table: str | None, html: str | None) -> None:
    """The files that are asked for."""
    if table is not None:
        (found.best or found.answers[0]).found.plans.write(table)
    if html is None:
        return
    if found.best is None:
        tell_notes([f"{html} is not written: there is no plan to show"])
        return
    from foretell.report.files import save
    from foretell.report.step_page import plan_page

    save(plan_page(found.best), html)
