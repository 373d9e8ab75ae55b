"""`foretell plan --batch auto`: a search for each batch, and the one with the least time to quality."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click
import msgspec

from foretell.cli.main import NOTHING_FITS
from foretell.cli.notes import tell_notes
from foretell.cli.plan_answers import answers_of, notes_of, of_the_best, refuse
from foretell.cli.plan_questions import questions_of
from foretell.cli.several import numbers

if TYPE_CHECKING:
    from foretell.cli.progress import Progress
    from foretell.oracle.batches import BatchChoice
    from foretell.oracle.planning import PlanningAnswer
    from foretell.oracle.training import TrainingRun


def choose_batch(options: dict[str, Any], run: TrainingRun, progress: Progress, as_json: bool) -> None:
    """Search for each batch, and tell the one with the least time to quality."""
    from foretell.cli import batch_pages
    from foretell.cli import plan_pages as pages
    from foretell.oracle.batches import sequence_of, tradeoff, weighed
    from foretell.oracle.planning import nearest
    from foretell.oracle.recommend import recommend
    from foretell.oracle.refinement import refine
    from foretell.oracle.training import run as run_of
    from foretell.plan.text import parse

    price, epochs, by = run.conditions.price, run.epochs, options["by"]
    length = sequence_of(options["model"], options["seq"] or 0)
    by_noise = tradeoff(options["noise_scale"], epochs * run.tokens, epochs * run.samples, length)
    questions = [one for batch in _batches(options, by_noise.noise) for one in questions_of(options, batch)]
    answers = [recommend(refine(one)) for one in answers_of(questions, progress)]
    choice = weighed(answers, by_noise, price, by)
    table = batch_pages.tradeoff_table(choice, price)
    notes = by_noise.of_another(options["model"])
    if choice.best is None:
        priced = [one for one in answers if one.found.evaluated] or refuse(answers)
        _tell(as_json, nearest(priced), choice, notes, f"{pages.nothing_page(nearest(priced), ())}\n\n{table}")
        raise click.exceptions.Exit(NOTHING_FITS)
    batch, ranks, plan = choice.best.batch, choice.best.ranks, parse(choice.best.plan)
    best = next(one for one in answers if (one.found.batch, one.found.ranks) == (batch, ranks))
    if options["table"] is not None:
        best.found.plans.write(options["table"])
    if options["html"] is not None:
        from foretell.report.files import save
        from foretell.report.step_page import plan_page

        save(plan_page(best), options["html"])
    step = best.predicted(plan, run_of(samples=by_noise.samples(batch), price=price) if by_noise.least else run)
    _tell(as_json, best, choice, notes, f"{pages.answer_page(best, step, price, by)}\n\n{table}")


def _batches(options: dict[str, Any], noise: float) -> list[int]:
    """Those that are tried: all that may gain, a range, or a list."""
    from foretell.oracle.batches import wanted

    text = options["batch"] or "auto"
    if re.fullmatch(r"[\s0-9,]+", text):
        return numbers(text, "--batch", "batches", "auto, 32..4096 or 64,96,128")
    return wanted(text, noise, [one.place.ranks for one in questions_of(options, 1)])


def _tell(as_json: bool, answer: PlanningAnswer, choice: BatchChoice, notes: tuple[str, ...], page: str) -> None:
    notes = (*notes_of([answer]), *notes)
    if as_json:
        found: dict[str, Any] = msgspec.to_builtins(answer.found)
        found |= of_the_best(answer, choice.by) if answer.found.best is not None else {}
        weighed: dict[str, Any] = msgspec.to_builtins(choice)
        names = ("noise_scale", "noise_source", "least_samples", "batches")
        chosen = {**{name: weighed[name] for name in names}, "choice": weighed["best"]}
        click.echo(msgspec.json.encode({**found, **chosen, "notes": notes}))
        return
    click.echo(page)
    tell_notes(notes)
