"""foretell validate: predictions against measured runs, study by study."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from foretell.cli.table import WIDTH, comma_separated, fit, table

if TYPE_CHECKING:
    from foretell.validation.conditions import Condition
    from foretell.validation.evaluate import ComparedRun, Scores, Subset
    from foretell.validation.score import Errors
    from foretell.validation.sides import Sides
    from foretell.validation.study import MeasuredCall, MeasuredRun, Study
    from foretell.validation.unseen import UnseenScores
    from foretell.validation.unseen_memory import MemoryScores

REASONS_SHOWN = 8
OWN_STEPS = ("coverage", "choose", "ablate")
"""Views that are learnt from our own training steps too."""


@click.command("validate", short_help="Predictions against published runs.")
@click.argument("files", nargs=-1, metavar="[FILE]...", type=click.Path(path_type=Path))
@click.option(
    "--study", "names", metavar="NAME", multiple=True, help="Only this study (or sanity, recipes); repeatable."
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most N runs of each study, evenly chosen.")
@click.option("--subsets", is_flag=True, help="Also print the parts of each study.")
@click.option("--rows", "view", flag_value="rows", help="Every run as CSV: measured and predicted.")
@click.option("--table", "view", flag_value="table", help="Each run, published and predicted, and why some are off.")
@click.option("--regret", "view", flag_value="regret", help="What following the predictions would have cost.")
@click.option("--coverage", "view", flag_value="coverage", help="Share of runs inside, each source left out in turn.")
@click.option("--anchors", "view", flag_value="anchors", help="What one measured run does for others of its source.")
@click.option("--constants", "view", flag_value="constants", help="Every constant that measured runs were used for.")
@click.option("--ablate", "view", flag_value="ablate", help="What each constant is worth: errors without it.")
@click.option("--html", metavar="FILE", help="Write a report to look at: one file, with charts.")
@click.option("--learn", type=click.Path(dir_okay=False, path_type=Path), hidden=True, help="Write learnt bands here.")
@click.option("--choose", "view", flag_value="choose", hidden=True, help="Choose constants again without each source.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(
    files: tuple[Path, ...],
    names: tuple[str, ...],
    limit: int | None,
    subsets: bool,
    view: str | None,
    html: str | None,
    learn: Path | None,
    as_json: bool,
) -> None:
    """Compare predictions with published, measured runs.

    FILE is a CSV with the columns of one of the studies that ship (runs,
    collectives or kernels), or JSON lines of device steps; without FILE all
    studies of runs that ship. Every run is scored, refused by a rule, or not
    scored for a reason; all three are counted. The first table is the score:
    errors on sources that no constant was chosen on.
    """
    from foretell.errors import BadInput
    from foretell.report.files import check_page
    from foretell.validation import published
    from foretell.validation.study import read

    check_page(html)
    if view == "constants":
        click.echo(_constants(as_json))
        return
    if files and names:
        raise BadInput("--study names one that ships, and files are given", fix="one of them")
    more = published.own_files() if view in OWN_STEPS and not files and not names else []
    again = view in (None, "anchors", "coverage")
    studies = [read(path) for path in (files or [*published.files(*names), *more])]
    sides = _from_all_sides(studies, limit, bool(files), again, without_prices=view == "choose")
    done = [(study, [one.seen for one in own]) for study, own in sides]
    if html is not None:
        from foretell.report.files import save
        from foretell.report.validation import scoreboard_page

        save(scoreboard_page(done), html)
        click.echo(f"note: the report is {html}", err=True)
    if view == "coverage":
        from foretell.cli.coverage_pages import answer_coverage

        answer_coverage(sides, learn, as_json)
        return
    if view == "choose":
        from foretell.cli.unseen_pages import choose_all

        choose_all(done)
        return
    click.echo(_view(sides, view, as_json) if view else _answer(sides, done, subsets, as_json))


def _from_all_sides(
    studies: list[Study], limit: int | None, own: bool, again: bool, without_prices: bool
) -> list[tuple[Study, list[Sides]]]:
    """Every study with its runs predicted, with `again` as if they had not been seen too; of somebody's own file
    without the steps that cannot have been."""
    from foretell.oracle.predict import predict
    from foretell.validation.possible import possible
    from foretell.validation.sides import legal, predicted

    asked = [(study, evenly(study.rows, limit)) for study in studies]
    by = legal if without_prices else predict
    found = predicted(asked, again, progress(sum(len(rows) for _, rows in asked)), by=by)
    if not own:
        return list(zip(studies, found, strict=True))
    done: list[tuple[Study, list[Sides]]] = []
    for study, sides in zip(studies, found, strict=True):
        left, compared = possible(study, [one.seen for one in sides])
        kept = set(map(id, compared))
        done.append((left, [one for one in sides if id(one.seen) in kept]))
    return done


def _view(sides: list[tuple[Study, list[Sides]]], view: str, as_json: bool) -> str:
    from foretell.cli import anchor_pages, regret_pages, side_by_side_pages, unseen_pages

    done = [(study, [one.seen for one in own]) for study, own in sides]
    if view == "anchors":
        return anchor_pages.answer_anchors(sides, as_json)
    if view == "ablate":
        return unseen_pages.answer_ablation(done, as_json)
    if view == "rows":
        return _rows(done, as_json)
    if view == "table":
        return side_by_side_pages.answer((one for _, compared in done for one in compared), as_json)
    named = [(study.name, compared) for study, compared in done]
    return regret_pages.as_json(named).decode() if as_json else regret_pages.page(named)


def _answer(
    sides: list[tuple[Study, list[Sides]]], done: list[tuple[Study, list[ComparedRun]]], subsets: bool, as_json: bool
) -> str:
    from foretell.cli import unseen_pages
    from foretell.cli.condition_pages import condition_lines
    from foretell.cli.likely_pages import likely_lines
    from foretell.validation.conditions import conditions
    from foretell.validation.evaluate import scores
    from foretell.validation.sources import by_memory

    found = [scores(study, compared) for study, compared in done]
    unseen, memory = unseen_pages.score(sides), unseen_pages.memory_score(sides)
    told = {study.name: conditions(compared) for study, compared in done}
    if as_json:
        return _json(found, unseen, memory, {name: own for name, own in told.items() if own})
    first = unseen_pages.unseen_lines(unseen, subsets)
    last = [line for study, compared in done for line in (*_accuracy(compared), *condition_lines(told[study.name]))]
    known = [one for _, compared in done for one in compared if by_memory(one.row)]
    likely = likely_lines(one.verdict for one in known if one.prediction is not None)
    others = [one for _, compared in done for one in compared if not by_memory(one.row)]
    return "\n".join(
        [
            *first,
            *_page(found, subsets),
            *unseen_pages.memory_lines(memory, subsets),
            *likely,
            *otherwise(known, others),
            *last,
        ]
    )


def otherwise(known: list[ComparedRun], others: list[ComparedRun]) -> list[str]:
    """Failures that say nothing of memory, and what was said of failures with them and without."""
    if not others:
        return []
    failed = [one for one in known if not one.verdict.ran]
    wrong, more = (sum(one.verdict.foretold for one in some) for some in (failed, others))
    every = len(failed) + len(others)
    return [
        "",
        f"{len(others)} failures are not counted: a run that needs at least as much memory finished.",
        f"Said to fit: {wrong} of the {len(failed)} that are counted, {wrong + more} of all {every}.",
    ]


def evenly(rows: tuple[MeasuredRun, ...], limit: int | None) -> tuple[MeasuredRun, ...]:
    """At most so many rows, from all over the study."""
    if limit is None or len(rows) <= limit:
        return rows
    return tuple(rows[at * len(rows) // limit] for at in range(limit))


def progress(total: int) -> Callable[[int], None]:
    """A line on standard error that counts up, where someone watches."""
    if not sys.stderr.isatty():
        return lambda runs: None
    state = {"done": 0, "shown": 0.0}

    def told(runs: int) -> None:
        state["done"] += runs
        if state["done"] == total:
            click.echo(f"\r{' ' * (WIDTH - 1)}\r", err=True, nl=False)
        elif time.monotonic() - state["shown"] > 0.2:
            state["shown"] = time.monotonic()
            click.echo(f"\r{state['done']:,} of {total:,} runs", err=True, nl=False)

    return told


# for people


def _page(found: list[Scores], subsets: bool) -> list[str]:
    header = ["study", "runs", "scored", "refused", "not scored", "ran, refused", "inside, %"]
    counts = [
        [
            one.study,
            *map(str, (one.total, one.n, one.refused, one.not_scored, one.refused_though_ran)),
            "-" if one.inside is None else f"{100 * one.inside:.0f}",
        ]
        for one in found
    ]
    lines = [table(header, counts), "", *_errors([line for one in found for line in _with_strict(one)])]
    lines += _fits([line for one in found for line in _with_recompute(one)])
    for one in found:
        if subsets:
            lines += ["", *_errors([(one.study, one), *((f"  {tag}", part) for tag, part in one.subsets.items())])]
        lines += _counted(f"{one.study}, refused", one.refused_rules)
        lines += _counted(f"{one.study}, not scored", one.not_scored_reasons)
    return lines


def _with_strict(one: Scores) -> list[tuple[str, Scores | Subset]]:
    """A study, and where its sources leave something open, its runs that say all apart from the others."""
    from foretell.validation.evaluate import ASSUMED, STATED

    kinds = [kind for kind in (STATED, ASSUMED) if kind in one.subsets and one.subsets[kind].n]
    return [(one.study, one), *((f"  {kind}", one.subsets[kind]) for kind in kinds)]


def _with_recompute(one: Scores) -> list[tuple[str, Scores | Subset]]:
    """A study, and apart those of its runs whose source does not say what runs again."""
    from foretell.validation.studies.llm import RECOMPUTE_SAID, RECOMPUTE_UNSAID

    kinds = [kind for kind in (RECOMPUTE_SAID, RECOMPUTE_UNSAID) if kind in one.subsets]
    return [(one.study, one), *((f"  {kind}", one.subsets[kind]) for kind in kinds)]


def _fits(parts: list[tuple[str, Scores | Subset]]) -> list[str]:
    """Of runs that ran, those said not to fit or refused; of those that failed, those said to fit."""
    rows: list[list[str]] = []
    for name, found in ((name, part.fits) for name, part in parts if part.fits):
        ran = found.n - found.failures
        wrong = round(found.n * (1 - found.accuracy))
        missed = found.failures - found.failures_foretold
        balanced = "-" if found.balanced is None else f"{100 * found.balanced:.1f}"
        rows.append([name, *map(str, (ran, wrong - missed, found.failures, missed)), balanced, f"{found.brier:.3f}"])
    header = ["fits or not", "ran", "said not to", "failed", "said to", "balanced, %", "Brier"]
    return ["", table(header, rows)] if rows else []


def _errors(parts: list[tuple[str, Scores | Subset]]) -> list[str]:
    header = ["error, %", "time", "median", "p90", "bias", "memory", "median", "fits", "order", "regret"]
    rows = [
        [
            name,
            *_three(part.time),
            _signed(part.time.bias) if part.time else "-",
            *_three(part.memory)[:2],
            f"{100 * part.fits.accuracy:.1f}" if part.fits else "-",
            "-" if part.rank_correlation is None else f"{part.rank_correlation:.2f}",
            f"{100 * part.regret.mean:.1f}" if part.regret else "-",
        ]
        for name, part in parts
    ]
    return [table(header, rows)]


def _three(found: Errors | None) -> list[str]:
    return [f"{100 * value:.1f}" for value in (found.mape, found.median, found.p90)] if found else ["-"] * 3


def _accuracy(compared: list[ComparedRun]) -> list[str]:
    """How accurate we and a source's own predictions are, strategy by strategy, where it has any."""
    from foretell.validation.accuracy import accuracies

    found = accuracies(compared)
    rows = [[one.name, str(one.runs), f"{100 * one.ours:.1f}", f"{100 * one.theirs:.1f}"] for one in found]
    return ["", table(["accuracy, %", "runs", "ours", "the source's own"], rows)] if rows else []


def _signed(fraction: float) -> str:
    return f"{100 * fraction:+.1f}"


def _counted(title: str, counts: dict[str, int]) -> list[str]:
    if not counts:
        return []
    most = list(counts.items())[:REASONS_SHOWN]
    rest = list(counts.values())[REASONS_SHOWN:]
    lines = ["", title, *(fit(f"{count:6,}  {reason}", WIDTH) for reason, count in most)]
    return [*lines, f"{sum(rest):6,}  for {len(rest)} other reasons (--json)"] if rest else lines


def _constants(as_json: bool) -> str:
    from foretell.validation.constants import fitted

    found = list(fitted())
    if as_json:
        return msgspec.json.encode({"constants": found}).decode()
    rows = [[one.owner.removeprefix("trainer "), one.name, fit(one.value, 10), fit(one.source, 24)] for one in found]
    return table(["owner", "constant", "value", "source"], rows)


# for programs


class StudyRow(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a study, measured and predicted."""

    study: str
    id: str
    model: str
    plan: str
    cluster: str
    trainer: str
    batch: int
    outcome: str
    refused: str  # the rule that refuses it
    fits: bool | None
    seconds: float | None
    predicted: float | None  # seconds
    bytes: float | None
    predicted_bytes: float | None
    assumed: str = ""  # what the source does not say


def _rows(done: list[tuple[Study, list[ComparedRun]]], as_json: bool) -> str:
    rows: list[StudyRow] = []
    for study, compared in done:
        rows += [*(_row(study.name, one) for one in compared), *(_call(study.name, one) for one in study.calls)]
    if as_json:
        return msgspec.json.encode({"rows": rows}).decode()
    header = [name.replace("_", " ") for name in StudyRow.__struct_fields__]
    return comma_separated(header, [msgspec.structs.astuple(row) for row in rows])


def _row(study: str, one: ComparedRun) -> StudyRow:
    row, predicted, memory = one.row, one.prediction, next(one.memory, None)
    return StudyRow(
        study=study,
        id=row.id,
        model=row.model,
        plan=str(row.plan),
        cluster=row.cluster,
        trainer=row.trainer,
        batch=row.job.batch,
        outcome=row.outcome,
        refused=one.rule,
        fits=None if predicted is None else bool(predicted.fits),
        seconds=(row.step_seconds or None) if one.time or predicted else None,
        predicted=predicted.step_seconds if predicted else None,
        bytes=memory.measured if memory else None,
        predicted_bytes=memory.predicted if memory else None,
        assumed="; ".join(row.assumed),
    )


def _call(study: str, call: MeasuredCall) -> StudyRow:
    """A collective or a kernel that was timed by itself."""
    return StudyRow(
        study=study,
        id=call.id,
        model=call.what,
        plan=call.chosen,
        cluster="",
        trainer="",
        batch=0,
        outcome="ok",
        refused="",
        fits=None,
        seconds=call.seconds,
        predicted=call.predicted,
        bytes=None,
        predicted_bytes=None,
    )


def _json(found: list[Scores], unseen: UnseenScores, memory: MemoryScores, told: dict[str, list[Condition]]) -> str:
    return msgspec.json.encode({"studies": found, "unseen": unseen, "memory": memory, "conditions": told}).decode()
