"""foretell plan: the best plan there is, of all that the search looks through."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from foretell.cli.main import NOTHING_FITS
from foretell.cli.notes import tell_notes
from foretell.cli.progress import Progress
from foretell.cli.question_options import CALIBRATION, words_of
from foretell.cli.several import numbers
from foretell.cli.training_options import positive, show_span, span
from foretell.errors import BadInput

if TYPE_CHECKING:
    from foretell.cli.config_change import Change
    from foretell.cli.config_options import Today
    from foretell.oracle.batches import BatchChoice
    from foretell.oracle.planning import Answer, Question, Tried
    from foretell.oracle.search import Found
    from foretell.oracle.training import Run

EXAMPLE = "foretell plan llama3-8b --on 8xh100 --batch 64"


@click.command("plan", short_help="The best plan there is, and what comes close.")
@click.argument("model", required=False)
@click.option("--from-config", metavar="FILE", help="What you run today: the best plan is told against it.")
@click.option("--out", metavar="FILE", help="With --from-config: write that file with the best plan instead.")
@click.option("--on", "cluster", metavar="CLUSTER", help="The cluster: 64xh100, dgx-a100, my.toml.")
@click.option("--batch", metavar="N", help="Samples of a step, of all ranks together; auto, or LOW..HIGH: the best.")
@click.option("--noise-scale", metavar="N", help="For --batch auto: of gradients, '2e6 tokens' or '500 samples'.")
@click.option("--batch-per-rank", type=int, metavar="N", help="Samples of a step for each rank that splits them.")
@click.option("--seq", type=int, metavar="N", help="Tokens in a sequence.")
@click.option("--trainer", metavar="NAME", default="pytorch", help="The software that runs it (pytorch).")
@click.option("--optimizer", metavar="NAME", default="", help="The update rule (the trainer's).")
@click.option("--precision", metavar="NAME", default="", help="bf16, fp8, ... (bf16 where the device has it).")
@click.option("--only", multiple=True, callback=words_of, metavar="WORDS", help="These strategies and policies: dp,tp.")
@click.option("--without", multiple=True, callback=words_of, metavar="WORDS", help="Not these: pp,offload.")
@click.option("--also", multiple=True, callback=words_of, metavar="WORDS", help="Those not searched unasked: local.")
@click.option("--fix", "fixed", metavar="TEXT", default="", help="Each plan has this: 'tp8 +recompute:block'.")
@click.option("--max-memory", metavar="SIZE", help="A rank may use this much: '60 GB'.")
@CALIBRATION
@click.option("--gpus", metavar="LOW..HIGH", help="A search for each number, doubling: 8..1024.")
@click.option(
    "--by", type=click.Choice(["time", "money", "memory", "gpus"]), default="time", help="What is best (time)."
)
@click.option("--tokens", type=float, metavar="N", help="Also: days to train on this many tokens.")
@click.option("--samples", type=float, metavar="N", help="Also: days to train on this many samples.")
@click.option("--epochs", type=float, metavar="N", help="Go through these so often (1).")
@click.option("--price", type=float, metavar="P", help="Of a device an hour.")
@click.option("--deadline", metavar="TIME", help="The training ends within this time: 30d.")
@click.option("--top", type=int, default=10, metavar="N", help="How many plans are told (10).")
@click.option("--table", metavar="FILE", help="Write every priced plan: plans.csv, plans.parquet.")
@click.option("--html", metavar="FILE", help="Write a report to look at: one file, with charts.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(as_json: bool, **options: Any) -> None:
    """The best plan for MODEL on a cluster, of all legal plans there are.

    Every combination of axes, strategies, schedules, micro-batches and policies is
    priced, time and memory; what rules refuse is counted by rule. Ctrl-C ends with
    the best so far. The exit code is 1 if no plan fits, or none is done in time.
    """
    from foretell.oracle.finer import finer
    from foretell.oracle.planning import best_of, by_memory
    from foretell.oracle.priced_plans import writable

    if options["table"] is not None:
        writable(options["table"])
    today = _today(options)
    run, limit = _run(options), _limit(options)
    by: str = options["by"]
    progress = Progress()
    if _is_choice(options):
        _choose_batch(options, run, by, progress, as_json)
        return
    answers = _answers(_questions(options, _batch(options["batch"])), progress)
    answers = [one for one in answers if one.found.evaluated] or _refuse(answers)
    if by == "memory":
        answers = [one._replace(found=by_memory(one.found)) for one in answers]
    else:
        answers = [finer(one) for one in answers]
    spans = [_span(one, run) for one in answers]
    best = best_of([one for one, taken in zip(answers, spans, strict=True) if taken <= limit], by)
    tried = [] if best or best_of(answers, by) else _would_fit(answers, progress)
    if options["table"] is not None:
        (best or answers[0]).found.plans.write(options["table"])
    change = _change(today, best, options["out"]) if today and best else None
    if options["html"] is not None and best is not None:
        from foretell.cli.reports import plan_page
        from foretell.report.files import save

        save(plan_page(best), options["html"])
    if as_json:
        click.echo(_json(answers, best, tried, change, spans if run.asked else (), limit))
    else:
        click.echo(_page(answers, best, tried, run, spans, limit, by))
        if change is not None:
            click.echo(f"\n{change.page()}")
        tell_notes(_notes(answers))
    if best is None:
        raise click.exceptions.Exit(NOTHING_FITS)


# what is run today


def _today(options: dict[str, Any]) -> Today | None:
    """The configuration that is given; what was not typed is as it says."""
    file, out = options.pop("from_config"), options["out"]
    if file is None:
        if out is not None:
            raise BadInput(
                "no configuration to write anew", where="--out", fix="--from-config ds_config.json --out new.json"
            )
        if not options["model"]:
            raise BadInput("no model is given", where="MODEL", fix=EXAMPLE)
        return None
    from foretell.cli.config_options import model_of, today, typed

    if options["batch_per_rank"] is not None or _is_choice(options):
        raise BadInput("another way to say the batch", where="--from-config", fix="--batch N, or the file's own")
    found = today(file, options["cluster"], _batch(options["batch"]))
    options |= {"model": model_of(options["model"], found), "batch": options["batch"] or str(found.recipe.batch)}
    options |= {"seq": options["seq"] or found.recipe.sequence or None}
    options |= {"optimizer": options["optimizer"] or found.recipe.optimizer}
    if not typed("trainer"):
        options["trainer"] = found.trainer
    tell_notes(found.notes)
    return found


def _change(found: Today, best: Answer, out: str | None) -> Change:
    from foretell.cli.config_change import changed

    return changed(found, best, out)


# what is asked


def _batch(text: str | None) -> int | None:
    """The number of samples that a text says."""
    if text is None:
        return None
    if not re.fullmatch(r"\s*-?[0-9]{1,18}\s*", text):
        fix = "--batch 64, or --batch auto --noise-scale '2e6 tokens'"
        raise BadInput(f"{text!r} is no number of samples", where="--batch", fix=fix)
    return int(text)


def _questions(options: dict[str, Any], batch: int | None) -> list[Question]:
    from foretell.oracle.planning import asked
    from foretell.oracle.space import Wishes

    if options["cluster"] is None:
        raise BadInput("no cluster is given", where="--on", fix=EXAMPLE)
    return asked(
        options["model"],
        options["cluster"],
        batch,
        options["batch_per_rank"],
        trainer=options["trainer"],
        optimizer=options["optimizer"],
        seq=options["seq"],
        precision=options["precision"],
        wishes=Wishes(
            only=options["only"], without=options["without"], also=options["also"], fixed=options["fixed"].strip()
        ),
        max_memory=options["max_memory"] or 0.0,
        top=options["top"],
        counts=counts(options["gpus"]) if options["gpus"] is not None else (),
        calibration=options["calibration"],
    )


def counts(text: str) -> list[int]:
    """The numbers of GPUs that a text says."""
    return numbers(text, "--gpus", "numbers of GPUs", "8..1024, or 8,24,64")


def _run(options: dict[str, Any]) -> Run:
    from foretell.oracle.training import run

    tokens, samples, epochs, price = (positive(options[name], f"--{name}") for name in RUN)
    return run(tokens, samples, epochs or 1.0, price)


RUN = ("tokens", "samples", "epochs", "price")
"""What is said of a whole run."""


def _limit(options: dict[str, Any]) -> float:
    """Seconds that a training may take."""
    limit = span(options["deadline"], "--deadline") if options["deadline"] is not None else float("inf")
    if options["deadline"] is not None and not (options["tokens"] or options["samples"]):
        raise BadInput("a deadline of nothing", where="--deadline", fix="with --tokens 1e12, or --samples 1e6")
    if options["by"] == "gpus" and options["gpus"] is None:
        raise BadInput("fewest GPUs of which numbers?", where="--by", fix="--by gpus --gpus 8..1024")
    return limit


# what is answered


def _answers(questions: Sequence[Question], progress: Progress) -> list[Answer]:
    """One after the other, until one is interrupted."""
    from foretell.oracle.planning import answered

    found: list[Answer] = []
    for question in questions:
        found.append(answered(question, progress.of))
        if not found[-1].found.complete:
            break
    progress.end()
    return found


def _refuse(answers: Sequence[Answer]) -> list[Answer]:
    """No plan is left: say by which rules, and what would leave some."""
    from foretell.oracle.planning import other_batches
    from foretell.plan.refusal import PlanRefused, Refusal

    if any(not one.found.complete for one in answers):
        raise click.Abort
    first = answers[-1]
    rules = tuple(Refusal(rule, first.space.why[rule]) for rule in first.found.refused)
    wishes = first.question.wishes
    given = [
        f"--{name} {text}"
        for name, text in (
            ("fix", f"'{wishes.fixed}'" if wishes.fixed else ""),
            ("only", ",".join(wishes.only)),
            ("without", ",".join(wishes.without)),
        )
        if text
    ]
    said = f" with {' '.join(given)}" if given else ""
    what = f"no plan is left for {first.question.model} on {first.found.cluster}{said}"
    others = [f"--batch {batch}" for batch in other_batches(first)]
    fix = [*others, *(["fewer constraints"] if given else [] if others else ["another number of ranks or trainer"])]
    lines = [line for one in rules for line in (f"  rule   {one.rule}", f"  why    {one.why}")]
    problem = PlanRefused("\n".join([what, *lines]), fix=", or ".join(fix))
    problem.refusals = rules
    raise problem


def _span(answer: Answer, run: Run) -> float:
    """Seconds that the best plan of an answer trains; none where no run is asked about."""
    best = answer.found.best
    training = answer.predicted(best.plan, run).training if best is not None and run.asked else None
    return training.seconds if training is not None else 0.0


def _would_fit(answers: Sequence[Answer], progress: Progress) -> list[Tried]:
    """What else was searched, where nothing fits: for the largest cluster of those asked about."""
    from foretell.oracle.planning import nearest, would_fit

    tried: list[Tried] = []
    try:
        for one in would_fit(nearest(answers).question, progress.of):
            tried.append(one)
            if not one.answer.found.complete:
                break
    except KeyboardInterrupt:
        pass
    progress.end()
    return tried


# the batch as a choice


def _is_choice(options: dict[str, Any]) -> bool:
    """Whether the batch is to be chosen; what does not go with that is refused."""
    text = (options["batch"] or "").strip().lower()
    chosen = text == "auto" or ".." in text or "," in text
    if chosen and options["noise_scale"] is None:
        from foretell.oracle.batches import missing

        raise missing()
    if options["noise_scale"] is None:
        return False
    for name, wrong in (
        ("--batch-per-rank", options["batch_per_rank"] is not None),
        ("--deadline", options["deadline"] is not None),
        (f"--by {options['by']}", options["by"] not in ("time", "money")),
    ):
        if wrong:
            fix = "--batch auto, with --by time or --by money"
            raise BadInput(f"{name} does not go with a noise scale", where="--noise-scale", fix=fix)
    return True


def _choose_batch(options: dict[str, Any], run: Run, by: str, progress: Progress, as_json: bool) -> None:
    """Search for each batch, and tell the one with the least time to quality."""
    from foretell.cli import batch_pages
    from foretell.cli import plan_pages as pages
    from foretell.oracle.batches import sequence_of, tradeoff, weighed
    from foretell.oracle.planning import nearest
    from foretell.oracle.training import run as run_of

    price, epochs = run.conditions.price, run.epochs
    length = sequence_of(options["model"], options["seq"] or 0)
    by_noise = tradeoff(options["noise_scale"], epochs * run.tokens, epochs * run.samples, length)
    questions = [one for batch in _batches(options, by_noise.noise) for one in _questions(options, batch)]
    answers = _answers(questions, progress)
    choice = weighed(answers, by_noise, price, by)
    table = batch_pages.tradeoff_table(choice, price)
    if choice.best is None:
        priced = [one for one in answers if one.found.evaluated] or _refuse(answers)
        _tell(as_json, nearest(priced), choice, f"{pages.nothing_page(nearest(priced), ())}\n\n{table}")
        raise click.exceptions.Exit(NOTHING_FITS)
    batch, ranks, plan = choice.best.batch, choice.best.ranks, choice.best.plan
    best = next(one for one in answers if (one.found.batch, one.found.ranks) == (batch, ranks))
    if options["table"] is not None:
        best.found.plans.write(options["table"])
    step = best.predicted(plan, run_of(samples=by_noise.samples(batch), price=price) if by_noise.least else run)
    _tell(as_json, best, choice, f"{pages.answer_page(best, step, price, by)}\n\n{table}")


def _batches(options: dict[str, Any], noise: float) -> list[int]:
    """Those that are tried: all that may gain, a range, or a list."""
    from foretell.oracle.batches import wanted

    text = options["batch"] or "auto"
    if re.fullmatch(r"[\s0-9,]+", text):
        return numbers(text, "--batch", "batches", "auto, 32..4096 or 64,96,128")
    return wanted(text, noise, [one.cluster.ranks for one in _questions(options, 1)])


def _tell(as_json: bool, answer: Answer, choice: BatchChoice, page: str) -> None:
    if as_json:
        found: dict[str, Any] = msgspec.to_builtins(answer.found)
        weighed: dict[str, Any] = msgspec.to_builtins(choice)
        names = ("noise_scale", "least_samples", "batches")
        chosen = {**{name: weighed[name] for name in names}, "choice": weighed["best"]}
        click.echo(msgspec.json.encode({**found, **chosen, "notes": _notes([answer])}))
        return
    click.echo(page)
    tell_notes(_notes([answer]))


# for programs and people


def _notes(answers: Sequence[Answer]) -> tuple[str, ...]:
    """What was chosen for the person who asks, the same for all numbers of ranks; and a batch that nothing divides."""
    return (*answers[0].question.place().notes, *_undivided(answers))


def _undivided(answers: Sequence[Answer]) -> list[str]:
    """A batch that no ranks can share leaves few plans, and seldom is what was meant."""
    from foretell.oracle.planning import around

    found = [one.question for one in answers if one.found.ranks > 1]
    if not found or any(math.gcd(one.batch, one.cluster.ranks) > 1 or one.wishes.splits for one in found):
        return []
    one = found[-1]
    batch, ranks = one.batch, one.cluster.ranks
    near = [f"--batch {other}" for other in around(batch, ranks)]
    return [f"a batch of {batch} can be shared by no number of ranks that divides {ranks}: {' or '.join(near)} can"]


def _json(
    answers: Sequence[Answer],
    best: Answer | None,
    tried: Sequence[Tried],
    change: Change | None,
    spans: Sequence[float],
    limit: float,
) -> bytes:
    from foretell.oracle.planning import nearest

    chosen = (best or nearest(answers)).found
    answer: dict[str, Any] = {**msgspec.to_builtins(chosen), "notes": _notes(answers)}
    if best is None:
        answer |= {"best": None}
    else:
        answer |= _of_the_best(best)
    if change is not None:
        answer["today"] = change
    if len(answers) > 1:
        answer["searches"] = [_short(one.found) for one in answers]
        for one, taken in zip(answer["searches"], spans, strict=False):
            one |= {"training_seconds": taken, "in_time": bool(one["best"]) and taken <= limit}
    if tried:
        answer["tried"] = [{"what": one.what, **_short(one.answer.found)} for one in tried]
    return msgspec.json.encode(answer)


def _of_the_best(answer: Answer) -> dict[str, Any]:
    """What is told of the best: usable memory that it leaves free, the fastest that leaves a tenth, similar runs."""
    from foretell.cost.memory import usable_bytes
    from foretell.oracle.headroom import roomy

    assert answer.found.best is not None
    usable = usable_bytes(answer.space.trainer, answer.space.cluster)
    known = answer.predicted(answer.found.best.plan).accuracy
    left = 1 - answer.found.best.memory_bytes / usable
    return {"headroom": left, "roomy": roomy(answer.found, usable), "accuracy": known}


def _short(found: Found) -> dict[str, Any]:
    names = ("cluster", "ranks", "batch", "evaluated", "fitting", "seconds", "complete", "best", "nearest")
    return {name: msgspec.to_builtins(getattr(found, name)) for name in names}


def _page(
    answers: Sequence[Answer],
    best: Answer | None,
    tried: Sequence[Tried],
    run: Run,
    spans: Sequence[float],
    limit: float,
    by: str,
) -> str:
    from foretell.cli import plan_pages as pages
    from foretell.oracle.planning import nearest

    price = run.conditions.price
    parts = [pages.counts_table(answers, price, by, spans, limit)] if len(answers) > 1 else []
    if best is not None:
        assert best.found.best is not None
        step = best.predicted(best.found.best.plan, run)
        return "\n\n".join([pages.answer_page(best, step, price, by), *parts])
    if any(one.found.best for one in answers):
        return "\n\n".join([_late(answers, spans, limit), *parts])
    return "\n\n".join([pages.nothing_page(nearest(answers), tried), *parts])


def _late(answers: Sequence[Answer], spans: Sequence[float], limit: float) -> str:
    """Plans fit, and none is done in time."""
    found = [
        (taken, one, one.found.best.plan)
        for taken, one in zip(spans, answers, strict=True)
        if one.found.best is not None
    ]
    least, answer, plan = min(found, key=lambda one: one[0])
    return "\n".join(
        [
            f"No plan trains within {show_span(limit)}.",
            f"The fastest takes {show_span(least)}, on {answer.found.cluster}:",
            f"  {plan}",
        ]
    )
