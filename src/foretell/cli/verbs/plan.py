"""foretell plan: the best plan there is, of all that the search looks through."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from foretell.cli.progress import Progress
from foretell.cli.training_options import show_span, span
from foretell.errors import BadInput

if TYPE_CHECKING:
    from foretell.oracle.planning import Answer, Question, Tried
    from foretell.oracle.search import Found
    from foretell.oracle.training import Run

EXAMPLE = "foretell plan llama3-8b --on 8xh100 --batch 64"

MOST_COUNTS = 24
"""Numbers of GPUs that one command searches."""


def _words(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word for text in texts for word in text.replace(",", " ").split())


@click.command("plan", short_help="The best plan there is, and what comes close.")
@click.argument("model")
@click.option("--on", "cluster", metavar="CLUSTER", help="The cluster: 64xh100, dgx-a100, my.toml.")
@click.option("--batch", type=int, metavar="N", help="Samples of a step, of all ranks together.")
@click.option("--batch-per-rank", type=int, metavar="N", help="Samples of a step for each rank that splits them.")
@click.option("--seq", type=int, metavar="N", help="Tokens in a sequence.")
@click.option("--trainer", metavar="NAME", default="pytorch", help="The software that runs it (pytorch).")
@click.option("--optimizer", metavar="NAME", default="", help="The update rule (the trainer's).")
@click.option("--precision", metavar="NAME", default="", help="bf16, fp8, ... (bf16 where the device has it).")
@click.option("--only", multiple=True, callback=_words, metavar="WORDS", help="These strategies and policies: dp,tp.")
@click.option("--without", multiple=True, callback=_words, metavar="WORDS", help="Not these: pp,offload.")
@click.option("--also", multiple=True, callback=_words, metavar="WORDS", help="Those not searched unasked: local.")
@click.option("--fix", "fixed", metavar="TEXT", default="", help="Each plan has this: 'tp8 +recompute:block'.")
@click.option("--max-memory", metavar="SIZE", help="A rank may use this much: '60 GB'.")
@click.option("--gpus", metavar="LOW..HIGH", help="A search for each number, doubling: 8..1024.")
@click.option(
    "--by", type=click.Choice(["time", "money", "memory", "gpus"]), default="time", help="What is best (time)."
)
@click.option("--tokens", type=float, default=0.0, metavar="N", help="Also: days to train on this many tokens.")
@click.option("--samples", type=float, default=0.0, metavar="N", help="Also: days to train on this many samples.")
@click.option("--epochs", type=float, default=1.0, metavar="N", help="Go through these so often (1).")
@click.option("--price", type=float, default=0.0, metavar="P", help="Of a device an hour.")
@click.option("--deadline", metavar="TIME", help="The training ends within this time: 30d.")
@click.option("--top", type=int, default=10, metavar="N", help="How many plans are told (10).")
@click.option("--table", metavar="FILE", help="Write every priced plan: plans.csv, plans.parquet.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(as_json: bool, **options: Any) -> None:
    """The best plan for MODEL on a cluster, of all legal plans there are.

    Every combination of axes, strategies, schedules, micro-batches and policies is
    priced, time and memory; what rules refuse is counted by rule. Ctrl-C ends with
    the best so far.
    """
    from foretell.oracle.finer import finer
    from foretell.oracle.planning import best_of, by_memory
    from foretell.oracle.priced_plans import writable

    if options["table"] is not None:
        writable(options["table"])
    run, limit = _run(options), _limit(options)
    by: str = options["by"]
    progress = Progress()
    answers = _answers(_questions(options), progress)
    answers = [one for one in answers if one.found.evaluated] or _refuse(answers)
    if by == "memory":
        answers = [one._replace(found=by_memory(one.found)) for one in answers]
    else:
        answers = [finer(one) for one in answers]
    met = [one for one in answers if _in_time(one, run, limit)]
    best = best_of(met, by)
    tried = [] if best or best_of(answers, by) else _would_fit(answers, progress)
    if options["table"] is not None:
        (best or answers[0]).found.plans.write(options["table"])
    if as_json:
        click.echo(_json(answers, best, tried))
    else:
        click.echo(_page(answers, best, tried, run, limit, by))


# what is asked


def _questions(options: dict[str, Any]) -> list[Question]:
    from foretell.oracle.planning import asked
    from foretell.oracle.space import Wishes

    if options["cluster"] is None:
        raise BadInput("no cluster is given", where="--on", fix=EXAMPLE)
    return asked(
        options["model"],
        options["cluster"],
        options["batch"],
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
    )


def counts(text: str) -> list[int]:
    """The numbers that a text says: 8..64 are 8, 16, 32, 64; 8,24 are these two."""
    form = re.fullmatch(r"\s*([0-9]+)\s*\.\.\s*([0-9]+)\s*", text)
    if form is None:
        parts = [part.strip() for part in text.split(",")]
        found = [int(part) for part in parts if part.isdecimal() and len(part) < 9]
        if len(found) < len(parts) or 0 in found:
            raise BadInput(f"{text!r} are no numbers of GPUs", where="--gpus", fix="8..1024, or 8,24,64")
        return sorted(set(found))
    low, high = int(form[1]), int(form[2])
    if not 1 <= low <= high:
        raise BadInput(f"{low} to {high} GPUs", where="--gpus", fix="from the lower number to the higher: 8..1024")
    doubled = [low * 2**times for times in range(MOST_COUNTS)]
    return [count for count in doubled if count <= high]


def _run(options: dict[str, Any]) -> Run:
    from foretell.oracle.training import run

    if options["price"] < 0:
        raise BadInput(f"a price of {options['price']:g}", where="--price", fix="--price 2.5")
    return run(options["tokens"], options["samples"], options["epochs"], options["price"])


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
    """No plan is left: say by which rules."""
    if any(not one.found.complete for one in answers):
        raise click.Abort
    first = answers[-1]
    rules = [line for rule in first.found.refused for line in (f"  rule   {rule}", f"  why    {first.space.why[rule]}")]
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
    fix = "fewer constraints" if given else "another batch, number of ranks or trainer"
    raise BadInput("\n".join([what, *rules]), fix=fix)


def _in_time(answer: Answer, run: Run, limit: float) -> bool:
    best = answer.found.best
    if best is None or limit == float("inf"):
        return best is not None
    training = answer.predicted(best.plan, run).training
    return training is not None and training.seconds <= limit


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


def _json(answers: Sequence[Answer], best: Answer | None, tried: Sequence[Tried]) -> bytes:
    from foretell.oracle.planning import nearest

    chosen = (best or nearest(answers)).found
    answer: dict[str, Any] = msgspec.to_builtins(chosen)
    if best is None:
        answer |= {"best": None}
    if len(answers) > 1:
        answer["searches"] = [_short(one.found) for one in answers]
    if tried:
        answer["tried"] = [{"what": one.what, **_short(one.answer.found)} for one in tried]
    return msgspec.json.encode(answer)


def _short(found: Found) -> dict[str, Any]:
    names = ("cluster", "ranks", "batch", "evaluated", "fitting", "seconds", "complete", "best", "nearest")
    return {name: msgspec.to_builtins(getattr(found, name)) for name in names}


def _page(
    answers: Sequence[Answer], best: Answer | None, tried: Sequence[Tried], run: Run, limit: float, by: str
) -> str:
    from foretell.cli import plan_pages as pages
    from foretell.oracle.planning import nearest

    price = run.conditions.price
    parts = [pages.counts_table(answers, price, by)] if len(answers) > 1 else []
    if best is not None:
        assert best.found.best is not None
        step = best.predicted(best.found.best.plan, run)
        return "\n\n".join([pages.answer_page(best, step, price, by), *parts])
    if any(one.found.best for one in answers):
        return "\n\n".join([_late(answers, run, limit), *parts])
    return "\n\n".join([pages.nothing_page(nearest(answers), tried), *parts])


def _late(answers: Sequence[Answer], run: Run, limit: float) -> str:
    """Plans fit, and none is done in time."""
    spans: list[tuple[float, Answer, str]] = []
    for one in answers:
        if one.found.best is not None:
            training = one.predicted(one.found.best.plan, run).training
            assert training is not None
            spans.append((training.seconds, one, one.found.best.plan))
    least, answer, plan = min(spans, key=lambda one: one[0])
    return "\n".join(
        [
            f"No plan trains within {show_span(limit)}.",
            f"The fastest takes {show_span(least)}, on {answer.found.cluster}:",
            f"  {plan}",
        ]
    )
